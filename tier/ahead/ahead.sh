unset BASH_ENV
printf r >&4
read -r <&3 || exit 0 # the sandbox was never used
[ -z "$REPLY" ] || export "$REPLY"
unset REPLY
exec 3<&- 4>&-
SECONDS=0
RANDOM=$SRANDOM # this process may be one of many copies
: bash # as $_ is at the start of a script
