package shell

import (
	"path"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// readers are the programs that only read and print, whatever their options.
var readers = set(`echo printf true false : pwd ls dir vdir cat head tail wc stat whoami id groups uname basename dirname realpath readlink
	cut tr nl rev tac fold fmt column paste join comm diff cmp cksum md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum
	sum base64 base32 od hexdump strings du df free uptime w who last lastlog ps pgrep pidof nproc arch seq sleep test [ expr
	factor numfmt jq which type whereis lscpu lsblk lsusb lspci lsmod lsof getconf locale printenv egrep fgrep grep zcat zgrep
	bzcat xzcat zstdcat tsort shuf pr expand unexpand look cal finger netstat ss ping ping6 traceroute tracepath dig nslookup host
	exit return break continue shift umask wait jobs hash times getopts read mapfile readarray let cd pushd popd dirs set unset
	shopt local caller logname tty users vmstat iostat mpstat sar lsns findmnt mountpoint namei pathchk pstree getfacl lsattr
	zipinfo nm objdump readelf size ldd cloc tokei egrep apropos whatis man tldr help iconv dircolors yes cksum diff3 sdiff less more
	file hostid blkid md5 shasum getent slabtop tput clear reset`)

// writers change files or the machine in ways that can be undone or are
// expected: high.
var writers = map[string]string{
	"cp": "copies files, over others of the same name", "mv": "moves files, over others of the same name", "mkdir": "makes folders",
	"touch": "makes files or changes their times", "ln": "makes links", "chmod": "changes permissions", "chown": "changes owners",
	"chgrp": "changes groups", "install": "copies files", "tee": "writes files", "scp": "copies files between machines",
	"sftp": "copies files between machines", "patch": "changes files", "unzip": "unpacks files", "zip": "packs files", "gzip": "packs files",
	"gunzip": "unpacks files", "bzip2": "packs files", "xz": "packs files", "zstd": "packs files", "unxz": "unpacks files", "bunzip2": "unpacks files",
	"7z": "packs or unpacks files", "split": "writes files", "csplit": "writes files", "mktemp": "makes a file", "mkfifo": "makes a pipe",
	"mknod": "makes a device", "rmdir": "removes empty folders", "kill": "ends a process", "pkill": "ends processes", "killall": "ends processes",
	"renice": "changes priorities", "mount": "mounts a file system", "umount": "unmounts a file system", "swapon": "turns swap on",
	"swapoff": "turns swap off", "sysctl": "changes the kernel's settings", "modprobe": "loads a kernel module", "rmmod": "unloads a kernel module",
	"insmod": "loads a kernel module", "useradd": "adds a user", "adduser": "adds a user", "usermod": "changes a user", "groupadd": "adds a group",
	"passwd": "changes a password", "chpasswd": "changes passwords", "chsh": "changes a login shell", "setfacl": "changes permissions",
	"setcap": "gives privileges to a program", "chattr": "changes attributes", "at": "plans commands for later", "batch": "plans commands for later",
	"update-alternatives": "changes the system", "dpkg-reconfigure": "changes the system", "ldconfig": "changes the system",
	"iptables": "changes the firewall", "ip6tables": "changes the firewall", "nft": "changes the firewall", "ufw": "changes the firewall",
	"ifconfig": "changes the network", "route": "changes the network", "brctl": "changes the network", "tc": "changes the network",
	"createdb": "creates a database", "createuser": "creates a role", "logger": "writes the system's log", "wall": "writes to all users",
	"write": "writes to a user", "mail": "sends mail", "mailx": "sends mail", "sendmail": "sends mail", "mutt": "sends mail",
	"ssh-keygen": "makes keys", "ssh-add": "gives keys to the agent", "gpg": "uses keys", "openssl": "uses keys, or connects", "sync": "flushes disks",
	"disown": "detaches a job", "bg": "resumes a job", "fg": "resumes a job", "alias": "changes what a name runs",
	"unalias": "changes what a name runs", "ulimit": "changes limits", "hostnamectl": "changes the system", "timedatectl": "changes the system",
	"nano": "edits files", "ed": "edits files", "convert": "writes files", "ffmpeg": "writes files", "ftp": "copies files between machines",
	"rename": "renames files", "dos2unix": "changes files", "losetup": "changes loop devices", "pg_dump": "dumps a database",
	"mysqldump": "dumps a database", "pg_restore": "loads a dump into a database", "loginctl": "changes sessions",
}

// losers take something away for good.
var losers = map[string]string{
	"rm": "deletes files: they cannot be brought back", "unlink": "deletes a file: it cannot be brought back",
	"shred": "overwrites files so that they cannot be brought back", "srm": "overwrites files so that they cannot be brought back",
	"truncate": "cuts files: what they held cannot be brought back", "wipefs": "wipes a file system's signature",
	"wipe":   "overwrites files so that they cannot be brought back",
	"mkswap": "overwrites a device", "fdisk": "changes a disk's partitions", "sfdisk": "changes a disk's partitions",
	"cfdisk": "changes a disk's partitions", "sgdisk": "changes a disk's partitions", "gdisk": "changes a disk's partitions",
	"parted": "changes a disk's partitions", "blkdiscard": "discards a device's content", "hdparm": "talks to a disk past its file system",
	"badblocks": "can overwrite a device", "lvremove": "removes a volume", "vgremove": "removes a volume group", "pvremove": "removes a physical volume",
	"zpool": "can destroy a pool", "zfs": "can destroy a file system", "cryptsetup": "can destroy an encrypted volume",
	"dropdb": "drops a database: it cannot be brought back", "dropuser": "drops a role", "userdel": "deletes a user", "deluser": "deletes a user",
	"groupdel": "deletes a group", "delgroup": "deletes a group", "tmpreaper": "deletes files", "tmpwatch": "deletes files", "rimraf": "deletes files",
	"trash-empty": "empties the trash", "mdadm": "can destroy a RAID array", "nvme": "can erase a disk", "debugfs": "changes a file system past its checks",
	"e2fsck": "can change a file system", "fsck": "can change a file system", "flash_erase": "erases a flash device", "del": "deletes files",
}

// stoppers take the machine down.
var stoppers = set(`shutdown reboot halt poweroff init telinit kexec systemctl-reboot`)

var trusted = map[string]bool{"/bin": true, "/usr/bin": true, "/sbin": true, "/usr/sbin": true, "/usr/local/bin": true, "/usr/local/sbin": true}

const maxWraps = 24 // wrappers around one command

// command judges one command: its name and arguments, after expansion.
func (w *walk) command(argv []arg, stdin string) {
	if w.wraps++; w.wraps > maxWraps {
		w.unknown("the command is wrapped too often to judge")
		w.wraps--
		return
	}
	defer func() { w.wraps-- }()
	if len(argv) == 0 {
		return
	}
	name, args := argv[0], argv[1:]
	if !name.literal() {
		w.opaque = true
		w.unknown("runs a command whose name is made at run time")
		return
	}
	base := name.text
	if strings.Contains(base, "/") {
		dir := path.Dir(path.Clean(base))
		base = path.Base(base)
		if !trusted[dir] {
			w.opaque = true
			w.found.Object(name.text)
			w.unknown("runs program %s, which is not known", name.text)
			if losers[base] == "" {
				return
			}
		}
	}
	w.known(base, args, stdin)
}

func (w *walk) known(name string, args []arg, stdin string) {
	switch {
	case readers[name]:
		w.reader(name, args)
	case strings.HasPrefix(name, "mkfs") || strings.HasPrefix(name, "mke2fs"):
		w.touched(args)
		w.found.Lost("makes a file system: what the device held cannot be brought back")
	case losers[name] != "":
		w.loser(name, args)
	case stoppers[name]:
		w.unknown("takes the machine down or restarts it")
	case writers[name] != "":
		w.writer(name, args)
	case w.wrapper(name, args, stdin), w.interpreter(name, args, stdin), w.special(name, args), w.byVerb(name, args):
	default:
		w.opaque = true
		w.unknown("runs %s, which the analyser does not know", name)
		for _, a := range args {
			w.reads(a)
		}
	}
}

func onlyHelp(args []arg) bool {
	return len(args) == 1 && args[0].literal() && (args[0].text == "--version" || args[0].text == "--help" || args[0].text == "version")
}

func (w *walk) reader(name string, args []arg) {
	switch name {
	case "printenv", "set":
		if name == "set" && len(args) > 0 {
			break
		}
		w.found.Add(sallyport.Medium, "prints the environment, which may hold secrets")
	case "file", "less", "more", "man":
		for _, a := range args {
			if a.loose || strings.HasPrefix(a.text, "-C") || strings.HasPrefix(a.text, "-o") || strings.HasPrefix(a.text, "-O") ||
				strings.HasPrefix(a.text, "--com") || strings.HasPrefix(a.text, "--log") || strings.HasPrefix(a.text, "-P") || strings.HasPrefix(a.text, "--pager") ||
				strings.HasPrefix(a.text, "-H") || strings.HasPrefix(a.text, "+") {
				w.unknown("%s is given an option that can write or run something", name)
			}
		}
	case "mapfile", "readarray", "hash", "blkid", "ss":
		w.acting(name, args)
	case "diff", "sdiff", "diff3":
		for _, a := range args {
			if strings.HasPrefix(a.text, "-o") || strings.HasPrefix(a.text, "--o") || strings.HasPrefix(a.text, "--diff-program") {
				w.unknown("%s is given an option that can write or run something", name)
			}
		}
	case "shuf", "iconv":
		for _, a := range args {
			if strings.HasPrefix(a.text, "-o") || strings.HasPrefix(a.text, "--o") || a.loose {
				w.found.Add(sallyport.High, "writes a file by an option of %s", name)
			}
		}
	}
	if name == "printf" {
		for _, a := range args {
			if a.loose && a == args[0] || strings.HasPrefix(a.text, "-v") && a == args[0] {
				w.unknown("printf sets a variable")
			}
		}
	}
	if name == "echo" || name == "printf" || name == "test" || name == "[" {
		return
	}
	for _, a := range args {
		w.reads(a)
	}
}

// acting are the letters of the options by which a reader runs a program, puts
// one in another's place, or changes something.
var acting = map[string]string{"mapfile": "C", "readarray": "C", "hash": "p", "blkid": "wg", "ss": "KD"}

func (w *walk) acting(name string, args []arg) {
	for _, a := range args {
		short := a.option() && !strings.HasPrefix(a.text, "--") && strings.ContainsAny(a.text, acting[name])
		if a.loose || short || strings.HasPrefix(a.text, "--kill") || strings.HasPrefix(a.text, "--diag") {
			w.unknown("%s is given an option that can run or change something", name)
		}
	}
}

func (w *walk) touched(args []arg) {
	for _, a := range args {
		if a.text != "" && !strings.HasPrefix(a.text, "-") {
			w.found.Object(a.text)
		}
	}
}

func (w *walk) loser(name string, args []arg) {
	if onlyHelp(args) {
		return
	}
	if (name == "fdisk" || name == "parted" || name == "sfdisk") && len(args) > 0 && args[0].literal() && args[0].text == "-l" {
		return
	}
	if (name == "zfs" || name == "zpool") && len(args) > 0 && args[0].literal() && (args[0].text == "list" || args[0].text == "status" || args[0].text == "get") {
		return
	}
	w.touched(args)
	w.found.Lost("%s", losers[name])
	for _, a := range args {
		switch a.text {
		case "/", "/*", "/home", "/etc", "/usr", "/var", "~", "~/", "*", ".", "./*", "$HOME":
			w.found.Lost("deletes everything under %s", a.text)
		}
	}
}

func (w *walk) writer(name string, args []arg) {
	if name == "unzip" && len(args) > 0 && args[0].literal() && (args[0].text == "-l" || args[0].text == "-t" || args[0].text == "-v") {
		return
	}
	if (name == "cp" || name == "mv") && len(args) > 1 && (args[0].text == "/dev/null" || args[len(args)-1].text == "/dev/null") {
		w.found.Lost("empties or throws away a file: it cannot be brought back")
	}
	if onlyHelp(args) || (name == "mount" || name == "alias" || name == "ulimit") && len(args) == 0 {
		return
	}
	if name == "tee" {
		w.tee(args)
		return
	}
	w.touched(args)
	w.found.Add(sallyport.High, "%s", writers[name])
	recursive := false
	for _, a := range args {
		recursive = recursive || strings.HasPrefix(a.text, "-") && !strings.HasPrefix(a.text, "--") && strings.ContainsAny(a.text, "Rr") || a.text == "--recursive"
		switch {
		case strings.HasPrefix(a.text, "/dev/") && !harmlessDevices[a.text] && (name == "cp" || name == "tee" || name == "mv" || name == "install"):
			w.found.Lost("writes to device %s, past every file system", a.text)
		case systemPath(a.text) && name != "cp" && name != "scp" && name != "zip" && name != "kill" || systemPath(a.text) && a == args[len(args)-1]:
			w.unknown("changes system path %s", a.text)
		case recursive && (a.text == "/" || a.text == "/*" || a.text == "~"):
			w.found.Lost("changes everything under %s", a.text)
		}
		if name == "cp" || name == "scp" || name == "zip" {
			if finding.SecretPath(a.text) {
				w.found.Add(sallyport.High, "copies %s, which holds secrets", a.text)
			}
		}
	}
	switch name {
	case "alias":
		w.unknown("changes what a name runs")
	case "iptables", "ip6tables", "nft", "ufw":
		for _, a := range args {
			if a.text == "-F" || a.text == "--flush" || a.text == "flush" || a.text == "reset" || a.text == "disable" {
				w.unknown("takes the firewall's rules away")
			}
		}
	case "ssh-keygen", "gpg", "openssl", "ftp", "sftp", "ed", "at", "batch", "convert", "mutt":
		w.unknown("%s can run programs or overwrite files by its options", name)
	case "kill", "pkill", "killall":
		for _, a := range args {
			if a.text == "-1" && a == args[len(args)-1] {
				w.unknown("ends every process")
			}
		}
	}
}

func (w *walk) tee(args []arg) {
	for _, a := range args {
		if a.loose || !a.option() {
			w.writesFile(a, false)
		}
	}
}

// options checks options against those known to be harmless, given as words:
// "-n" takes no value, "-k=" takes one. It returns what is no option, and
// whether every option was known.
func options(args []arg, allowed string) (rest []arg, bad string, ok bool) {
	known := set(allowed)
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.loose:
			return nil, "one that is made at run time", false
		case a.text == "--" && a.known:
			return append(rest, args[i+1:]...), "", true
		case !a.option():
			rest = append(rest, a)
		case strings.HasPrefix(a.text, "--"):
			name, _, valued := strings.Cut(a.text, "=")
			switch {
			case known[name+"="]:
				if !valued {
					i++
				}
			case known[name] || known[name+"[="]:
			default:
				return nil, name, false
			}
		default:
			skip, letter := shortOptions(a.text[1:], known)
			if letter != "" {
				return nil, letter, false
			}
			if skip {
				i++
			}
		}
	}
	return rest, "", true
}

// shortOptions reads -abc. It tells whether the next word is a value, and the
// first option that is not known.
func shortOptions(letters string, known map[string]bool) (skip bool, bad string) {
	if known["-"+letters] {
		return false, ""
	}
	if known["-"+letters+"="] {
		return true, ""
	}
	for j := 0; j < len(letters); j++ {
		o := "-" + letters[j:j+1]
		switch {
		case known[o+"="]:
			return j+1 == len(letters), ""
		case known[o]:
		case letters[j] >= '0' && letters[j] <= '9' && known["-#"]:
		default:
			return false, o
		}
	}
	return false, ""
}

// limited judges a program by the list of options that are harmless for it.
func (w *walk) limited(name string, args []arg, allowed string) ([]arg, bool) {
	rest, bad, ok := options(args, allowed+" --version --help")
	if !ok {
		w.unknown("%s is given option %s, which is not known to be harmless", name, bad)
	}
	for _, a := range args {
		w.reads(a)
	}
	return rest, ok
}
