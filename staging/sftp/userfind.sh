# Files below folders whose name contains a text, as their user sees them: userfind.sh DEEP SECONDS MOST GLOB FOLDER... It prints
# "size seconds path" of each, ended by NUL, at most MOST of them, and after them "end" when nothing was left out.
deep=$1 seconds=$2 most=$3 glob=$4
shift 4
{
  timeout "$seconds" find -P "$@" -maxdepth "$deep" -type f -iname "$glob" -printf '%s %T@ %p\0' 2>/dev/null
  [ $? -lt 124 ] && printf 'end\0'
} | head -z -n "$((most + 1))"
