package shell

import (
	"regexp"
	"strings"

	"sallyport.dev/sallyport"
)

// special judges the programs whose options decide.
func (w *walk) special(name string, args []arg) bool {
	switch name {
	case "date":
		w.date(args)
	case "hostname":
		if rest, ok := w.limited(name, args, "-f -i -I -s -d -A -y --fqdn --short --ip-address --domain"); ok && len(rest) > 0 {
			w.found.Add(sallyport.High, "changes the machine's name")
		}
	case "sort":
		w.limited(name, args, `-b -d -f -g -h -i -k= -M -m -n -r -R -s -t= -u -V -z -c -C --key= --reverse --unique --numeric-sort
			--field-separator= --human-numeric-sort --version-sort --stable --ignore-case --check --parallel= --zero-terminated --random-sort -S=`)
	case "uniq":
		if rest, ok := w.limited(name, args, "-c -d -D -u -i -f= -s= -w= -z --count --repeated --unique --ignore-case --skip-fields= --skip-chars="); ok && len(rest) > 1 {
			w.writesFile(rest[1], false)
		}
	case "xxd":
		if rest, ok := w.limited(name, args, "-a -b -c= -g= -h -i -l= -p -ps -r -s= -u -E -e"); ok && len(rest) > 1 {
			w.writesFile(rest[1], false)
		}
	case "ip":
		w.ip(args)
	case "history":
		w.history(args)
	case "crontab":
		w.crontab(args)
	case "dd":
		w.dd(args)
	case "tar", "bsdtar":
		w.tar(args)
	case "rsync":
		w.rsync(args)
	case "git":
		w.git(args)
	case "curl":
		w.curl(args)
	case "wget":
		w.wget(args)
	case "service":
		if len(args) != 2 || !args[1].literal() || args[1].text != "status" {
			w.found.Add(sallyport.High, "starts or stops a service")
		}
	case "http", "https", "xh":
		w.unknown("sends a request by %s, whose words are not read here", name)
	case "psql", "sqlite3", "mysql", "mariadb", "redis-cli", "mongosh", "mongo":
		w.database(name, args)
	default:
		return w.listed(name, args)
	}
	return true
}

// listed judges the programs that are harmless with the options listed here.
func (w *walk) listed(name string, args []arg) bool {
	switch name {
	case "tree":
		w.limited(name, args, "-a -d -f -i -L= -P= -I= -s -h -p -u -g -D -C -n -A -S -v -t -r -J -X -l -x --noreport --dirsfirst --prune --filelimit= --du --gitignore")
	case "rg", "ag", "ack":
		w.limited(name, args, `-i -v -n -l -L -c -w -x -e= -f= -g= -t= -T= -A= -B= -C= -m= -o -r= -q -s -S -u -F -P -U -z -H -I -N -0 -a -j= -p --hidden
			--no-ignore --files --files-with-matches --count --type= --glob= --json --color= --no-heading --heading --line-number --ignore-case
			--smart-case --stats --max-count= --max-depth= --context= --word-regexp --multiline --only-matching --replace= --sort= --vimgrep --fixed-strings`)
	case "yq":
		w.limited(name, args, "-r -e -o= -p= -P -C -M -N -c -j -y --output-format= --raw-output --prettyPrint")
	case "dmesg":
		w.limited(name, args, "-T -H -k -l= -f= -x -w --human --level= --ctime")
	case "fuser":
		w.limited(name, args, "-v -n= -m -u -a")
	case "top", "htop":
		w.limited(name, args, "-b -n= -d= -p= -u= -o= -H -i")
	default:
		return false
	}
	return true
}

func (w *walk) date(args []arg) {
	rest, ok := w.limited("date", args, "-u -R -I -Iseconds -Idate -d= -r= -f= --utc --date= --iso-8601[= --rfc-3339= --rfc-email --reference= --universal")
	if !ok {
		return
	}
	for _, a := range rest {
		if !strings.HasPrefix(a.text, "+") {
			w.unknown("sets the machine's clock")
		}
	}
}

func (w *walk) ip(args []arg) {
	for _, a := range args {
		switch a.text {
		case "add", "del", "delete", "set", "flush", "replace", "change", "append", "save", "restore", "exec", "attach", "netns":
			w.unknown("changes the network")
			return
		}
		if a.loose || strings.HasPrefix(a.text, "-b") || strings.HasPrefix(a.text, "-f") && a.text != "-f" && a.text != "-family" {
			w.unknown("ip is given an option that is not known to be harmless")
		}
	}
}

func (w *walk) history(args []arg) {
	for _, a := range args {
		if a.loose || a.option() && strings.ContainsAny(a.text, "cdwsanr") {
			w.found.Lost("deletes or rewrites the shell's history")
		}
	}
}

func (w *walk) crontab(args []arg) {
	for _, a := range args {
		switch a.text {
		case "-r":
			w.found.Lost("deletes every planned job of the user")
			return
		case "-l":
			return
		}
	}
	w.unknown("replaces the user's planned jobs")
}

func (w *walk) dd(args []arg) {
	writes := false
	for _, a := range args {
		key, value, _ := strings.Cut(a.text, "=")
		switch key {
		case "of":
			writes = true
			w.found.Object(value)
			if !harmlessDevices[value] || !a.known {
				w.found.Lost("overwrites %s block by block", value)
			}
		case "if":
			w.reads(arg{text: value})
		case "bs", "count", "ibs", "obs", "skip", "seek", "status", "iflag", "oflag", "conv", "cbs":
		default:
			if !onlyHelp(args) {
				w.unknown("dd is given %q, which is not known", a.text)
			}
		}
	}
	if !writes && w.found.Empty() {
		w.found.Add(sallyport.Low, "copies data to its output")
	}
}

func (w *walk) tar(args []arg) {
	mode := ""
	for i, a := range args {
		switch {
		case a.loose:
			w.unknown("tar is given a word that is made at run time")
		case strings.HasPrefix(a.text, "--"):
			name, _, _ := strings.Cut(a.text, "=")
			switch name {
			case "--list":
				mode += "t"
			case "--extract", "--get":
				mode += "x"
			case "--create":
				mode += "c"
			case "--delete", "--remove-files":
				w.found.Lost("tar deletes: %s", name)
			case "--file", "--gzip", "--bzip2", "--xz", "--zstd", "--verbose", "--directory", "--strip-components", "--exclude", "--wildcards",
				"--no-same-owner", "--keep-old-files", "--version", "--help", "--sort", "--mtime", "--owner", "--group", "--numeric-owner", "--transform":
			default:
				w.opaque = true
				w.unknown("tar is given option %s, which can run a program or overwrite files", name)
			}
		case i == 0 && !strings.HasPrefix(a.text, "-") || strings.HasPrefix(a.text, "-") && len(a.text) > 1:
			letters := strings.TrimPrefix(a.text, "-")
			if i > 0 && !strings.HasPrefix(a.text, "-") {
				continue
			}
			for _, c := range letters {
				switch c {
				case 't', 'x', 'c', 'r', 'u', 'd':
					mode += string(c)
				case 'f', 'v', 'z', 'j', 'J', 'C', 'p', 'k', 'h', 'O', 'a', 'W', 'w', 'S', 'm', 'o', 'P', 'Z', 'N':
				default:
					w.opaque = true
					w.unknown("tar is given option -%c, which can run a program or is not known", c)
				}
				if c == 'f' || c == 'C' {
					break
				}
			}
		}
	}
	switch {
	case strings.ContainsAny(mode, "x"):
		w.found.Add(sallyport.High, "unpacks files, over others of the same name")
	case strings.ContainsAny(mode, "cru"):
		w.found.Add(sallyport.High, "writes an archive")
	case !strings.ContainsAny(mode, "td") && !onlyHelp(args):
		w.unknown("tar is told nothing that is known")
	}
}

func (w *walk) rsync(args []arg) {
	w.touched(args)
	w.found.Add(sallyport.High, "copies files, over others of the same name")
	for _, a := range args {
		switch {
		case strings.HasPrefix(a.text, "--del") || a.text == "--remove-source-files":
			w.found.Lost("deletes files that the source does not have")
		case a.loose || strings.HasPrefix(a.text, "-e") || strings.HasPrefix(a.text, "--rsh") || strings.HasPrefix(a.text, "--rsync-path"):
			w.opaque = true
			w.unknown("rsync is given an option that can run a program")
		}
	}
}

// dotLooks are the commands of SQLite's shell that only show something.
var dotLooks = regexp.MustCompile(`^\.(tables|schema|databases|indexes|indices|fullschema)(\s+[\w%.]+)?$`)

// database judges the SQL that a client program is given.
func (w *walk) database(name string, args []arg) {
	if onlyHelp(args) {
		return
	}
	if name == "redis-cli" || name == "mongosh" || name == "mongo" {
		w.store(name, args)
		return
	}
	dialect := map[string]string{"psql": "postgres", "sqlite3": "sqlite"}[name]
	if dialect == "" {
		dialect = "mysql"
	}
	var queries []arg
	plain := 0
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.text == "-c" || a.text == "-e" || a.text == "--command" || a.text == "--execute" || a.text == "-cmd":
			if i++; i < len(args) {
				queries = append(queries, args[i])
			}
		case strings.HasPrefix(a.text, "--command=") || strings.HasPrefix(a.text, "--execute="):
			_, q, _ := strings.Cut(a.text, "=")
			queries = append(queries, arg{text: q, known: a.known})
		case dialect == "sqlite" && (a.text == "-readonly" || a.text == "-json" || a.text == "-csv" || a.text == "-header" || a.text == "-column" || a.text == "-line"):
		case a.text == "-f" || a.text == "--file" || a.text == "-o" || a.text == "-init" || a.loose:
			w.opaque = true
			w.unknown("%s is given %s: what it runs or writes cannot be seen here", name, a.text)
			i++
		case dialect == "sqlite" && !a.option():
			if plain++; plain > 1 {
				queries = append(queries, a)
			} else {
				w.found.Object(a.text)
			}
		}
	}
	if len(queries) == 0 {
		w.opaque = true
		w.unknown("%s runs what it reads on its input", name)
		return
	}
	for _, q := range queries {
		if dialect == "sqlite" && q.known && dotLooks.MatchString(q.text) {
			continue
		}
		if !q.known || w.judge.SQL == nil {
			w.unknown("%s is given SQL that is made at run time", name)
			continue
		}
		w.found.Merge(w.judge.SQL(dialect, q.text))
	}
}

func (w *walk) store(name string, args []arg) {
	if name != "redis-cli" {
		w.opaque = true
		w.unknown("%s runs code, whose effect cannot be told", name)
		for _, a := range args {
			if strings.Contains(a.text, "drop") || strings.Contains(a.text, "delete") || strings.Contains(a.text, "remove") {
				w.found.Lost("%s is told to drop or delete", name)
			}
		}
		return
	}
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a.text == "-h" || a.text == "-p" || a.text == "-n" || a.text == "-a" || a.text == "-u" {
			i++
			continue
		}
		if a.option() {
			continue
		}
		switch strings.ToUpper(a.text) {
		case "GET", "MGET", "KEYS", "SCAN", "TTL", "PTTL", "TYPE", "EXISTS", "INFO", "PING", "DBSIZE", "HGET", "HGETALL", "LRANGE", "LLEN",
			"SMEMBERS", "SCARD", "ZRANGE", "ZCARD", "STRLEN", "XLEN", "XRANGE", "TIME":
		case "FLUSHALL", "FLUSHDB", "DEL", "UNLINK", "SHUTDOWN", "GETDEL", "LPOP", "RPOP", "SPOP", "ZREM", "SREM", "HDEL", "XTRIM", "LTRIM":
			w.found.Lost("redis: %s takes values away for good", strings.ToUpper(a.text))
		case "SET", "SETEX", "INCR", "DECR", "HSET", "LPUSH", "RPUSH", "SADD", "ZADD", "EXPIRE", "PERSIST", "PUBLISH", "APPEND", "MSET", "SETNX":
			w.found.Add(sallyport.High, "redis: %s changes values", strings.ToUpper(a.text))
		default:
			w.unknown("redis: %s is not known to be harmless", a.text)
		}
		return
	}
	w.unknown("redis-cli runs what it reads on its input")
}
