<?php
// The mean of numbers. The first file has the arguments alone, the second is for the result.
[, $arguments, $result] = $argv;
$values = json_decode(file_get_contents($arguments), true, 512, JSON_THROW_ON_ERROR)['values'];
file_put_contents($result, json_encode(['mean' => array_sum($values) / count($values)], JSON_THROW_ON_ERROR) . "\n");
