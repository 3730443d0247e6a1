<?php
// Line lengths of a text: lines.php ARGS.json RESULT.json
[, $args, $result] = $argv;
$request = json_decode(file_get_contents($args), true, 64, JSON_THROW_ON_ERROR);
$lengths = array_map('strlen', file($request['inputs']['text']['path'], FILE_IGNORE_NEW_LINES));
file_put_contents($result, json_encode(['lines' => count($lengths), 'longest' => $lengths ? max($lengths) : 0, 'bytes' => array_sum($lengths)], JSON_THROW_ON_ERROR) . "\n");
