__own=/run/session/own/shell
__keep() {
  local status=$?
  { export -p; printf 'cd -- %q 2>/dev/null\n' "$PWD"; } >"$__own.new" 2>/dev/null && mv -f -- "$__own.new" "$__own" 2>/dev/null
  return $status
}
if [ -f "$__own" ]; then
  for __name in $(compgen -e); do unset -v "$__name" 2>/dev/null; done
  . "$__own"
fi
unset -v __name
trap __keep EXIT
__code=$1
set --
. "$__code"
__keep
