# What a file is that its user imports: userfile.sh PATH. It prints mode, device, inode, size and times, and opens nothing.
# Exit codes: 72 missing, 75 the filesystem failed, 81 a symlink is on the way, 82 the user may not read it, 83 a file of the kernel's
said=$(stat -c '%f %d %i %s %.9Y %.9Z' -- "$1" 2>&1) || case $said in
*': No such file or directory' | *': Not a directory') exit 72 ;;
*': Permission denied') exit 82 ;;
*) printf '%s\n' "$said" >&2 && exit 75 ;;
esac
[ "$(readlink -e -- "$1" && echo .)" = "$1
." ] || { readlink -e -- "$1" >&2; exit 81; }
[ -r "$1" ] || exit 82
case $(stat -f -c %t -- "$1") in # proc, sysfs, debugfs, tracefs, cgroup, cgroup2, securityfs, selinux, bpf, pstore, efivarfs, binfmt, nsfs
9fa0 | 62656572 | 64626720 | 74726163 | 27e0eb | 63677270 | 73636673 | f97cff8c | cafe4a11 | 6165676c | de5e81e4 | 42494e4d | 6e736673)
  exit 83
  ;;
esac
printf '%s\n' "$said"
