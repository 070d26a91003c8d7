package known

import "sallyport.dev/sallyport/risk/shell/word"

// Wrapping are the programs that run another, with the options they may have
// before it and how many words of their own come first.
var Wrapping = map[string]struct {
	Options string
	Own     int
}{
	"nice": {"-n= --adjustment= -#", 0}, "ionice": {"-c= -n= -t --class= --classdata= --ignore", 0}, "nohup": {"", 0},
	"timeout": {"-k= -s= -v --kill-after= --signal= --foreground --preserve-status --verbose", 1},
	"stdbuf":  {"-i= -o= -e= --input= --output= --error=", 0}, "setsid": {"-c -f -w --ctty --fork --wait", 0},
	"time": {"-p -v --portability --verbose -f= --format=", 0}, "chrt": {"-b -f -i -o -r", 1}, "taskset": {"-c= --cpu-list=", 0},
	"sudo": {"-u= -g= -E -H -i -n -S -k -b -A -s -p= --user= --group= --preserve-env --login --non-interactive --stdin --set-home", 0},
	"doas": {"-n -s -u=", 0}, "command": {"-p", 0}, "builtin": {"", 0}, "exec": {"-c -l -a=", 0}, "chronic": {"", 0},
	"unbuffer": {"-p", 0}, "proxychains": {"-q", 0}, "busybox": {"", 0}, "toybox": {"", 0}, "flock": {"-s -x -n -u -w= -e -o -E=", 1},
	"runuser": {"-u=", 0}, "setarch": {"-R", 0}, "linux64": {"", 0}, "linux32": {"", 0},
}

// FindTests are find's words that have a value, FindFlags those that have none.
var FindTests = word.Set(`-name -iname -iwholename -path -ipath -regex -iregex -type -size -mtime -mmin -atime -amin -ctime -cmin -newer -user -group -perm
	-maxdepth -mindepth -links -inum -samefile -fstype -printf -lname -wholename -uid -gid -newermt -newerct -regextype -used -xtype -context`)

// FindFlags are those that have none.
var FindFlags = word.Set(`-print -print0 -ls -prune -quit -not -a -o -and -or ! ( ) , -depth -d -xdev -mount -follow -H -L -P -empty -readable -writable
	-executable -nouser -nogroup -daystart -true -false -noleaf -warn -nowarn -ignore_readdir_race`)
