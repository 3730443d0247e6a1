package backup_test

import (
	"io/fs"
	"syscall"
)

func statUID(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }
