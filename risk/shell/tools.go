package shell

import (
	"cmp"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/client"
	"sallyport.dev/sallyport/risk/shell/known"
	"sallyport.dev/sallyport/risk/shell/verbs"
	"sallyport.dev/sallyport/risk/shell/word"
)

// special judges the programs whose options decide.
func (w *walk) special(name string, args []arg, stdin string) bool {
	switch name {
	case "date":
		w.date(args)
	case "hostname":
		if rest, ok := w.limited(name, args, "-f -i -I -s -d -A -y --fqdn --short --ip-address --domain"); ok && len(rest) > 0 {
			w.found.Add(sallyport.High, "changes the machine's name")
		}
	case "ip":
		verbs.IP(&w.found, args)
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
		if len(args) != 2 || !args[1].Literal() || args[1].Text != "status" {
			w.found.Add(sallyport.High, "starts or stops a service")
		}
	case "http", "https", "xh":
		w.httpie(name, args)
	case "duckdb", "clickhouse-client", "cqlsh":
		if !client.Plain(name, args) {
			return false
		}
		w.found.Effect(sallyport.EffectRead)
		w.readsAll(args)
	case "psql", "sqlite3", "mysql", "mariadb", "redis-cli", "mongosh", "mongo":
		w.database(name, args, stdin)
	case "iptables", "ip6tables", "nft", "ufw", "firewall-cmd":
		verbs.Firewall(&w.found, args)
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
		if !strings.HasPrefix(a.Text, "+") {
			w.unknown("sets the machine's clock")
		}
	}
}

func (w *walk) history(args []arg) {
	for _, a := range args {
		if a.Loose || a.Option() && strings.ContainsAny(a.Text, "cdwsanr") {
			w.lost("deletes or rewrites the shell's history")
		}
	}
}

func (w *walk) crontab(args []arg) {
	for _, a := range args {
		switch a.Text {
		case "-r":
			w.lost("deletes every planned job of the user")
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
		key, value, _ := strings.Cut(a.Text, "=")
		switch key {
		case "of":
			writes = true
			w.found.Object(value)
			if !harmlessDevices[value] || !a.Known {
				w.found.Effect(sallyport.EffectWrite)
				w.place(arg{Text: value})
				w.lost("overwrites %s block by block", value)
			}
		case "if":
			w.reads(arg{Text: value})
		case "bs", "count", "ibs", "obs", "skip", "seek", "status", "iflag", "oflag", "conv", "cbs":
		default:
			if !word.OnlyHelp(args) {
				w.unknown("dd is given %q, which is not known", a.Text)
			}
		}
	}
	if !writes {
		w.found.Effect(sallyport.EffectRead)
	}
}

// database judges the SQL that a client program is given.
func (w *walk) database(name string, args []arg, stdin string) {
	if word.OnlyHelp(args) {
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
	call := client.Read(dialect, args)
	for _, o := range call.Objects {
		w.found.Object(o)
	}
	w.readsAll(args)
	switch {
	case call.Opaque != "":
		w.hide()
		w.unknown("%s is given %s: what it runs or writes cannot be seen here", name, call.Opaque)
	case call.Odd != "":
		w.hide()
		w.unknown("%s is given option %s, which is not known to be harmless", name, call.Odd)
	}
	if text := cmp.Or(stdin, w.piped); len(call.Queries) == 0 && text != "" {
		call.Queries = []arg{{Text: text, Known: true}}
	}
	if len(call.Queries) == 0 {
		w.hide()
		w.unknown("%s runs what it reads on its input", name)
		return
	}
	for _, q := range call.Queries {
		w.query(name, dialect, q)
	}
}

func (w *walk) query(name, dialect string, q arg) {
	if !q.Known || w.judge.SQL == nil {
		w.unknown("%s is given SQL that is made at run time", name)
		return
	}
	text, ok := client.Script(dialect, q.Text)
	switch {
	case ok && text == "":
		return
	case !ok:
		w.hide()
		w.unknown("%s is given an order of its own that is not known to be harmless", name)
		text = q.Text
	}
	r := w.judge.SQL(dialect, text)
	if w.found.Merge(r); r.Irreversible {
		w.found.Effect(sallyport.EffectDelete)
	}
}

func (w *walk) store(name string, args []arg) {
	if name != "redis-cli" {
		if client.Mongo(args) {
			w.found.Effect(sallyport.EffectRead)
			w.found.Effect(sallyport.EffectNetwork)
			return
		}
		w.hide()
		w.unknown("%s runs code, whose effect cannot be told", name)
		for _, a := range args {
			if strings.Contains(a.Text, "drop") || strings.Contains(a.Text, "delete") || strings.Contains(a.Text, "remove") {
				w.lost("%s is told to drop or delete", name)
			}
		}
		return
	}
	verbs.Redis(&w.found, args)
}

// limited judges a program by the list of options that are harmless for it, as
// word.Options writes them.
func (w *walk) limited(name string, args []arg, allowed string) ([]arg, bool) {
	return w.read(name, word.ParseOptions(allowed+" --version --help"), args)
}

// allowed does so by the list in the table.
func (w *walk) allowed(name string, args []arg) ([]arg, bool) {
	p, _ := known.Find(name + ":all")
	return w.read(name, p.Options, args)
}

func (w *walk) read(name string, o word.Options, args []arg) ([]arg, bool) {
	r := o.Read(args, false)
	if r.Bad != "" {
		w.unknown("%s is given option %s, which is not known to be harmless", name, r.Bad)
	}
	w.doubts(name, r)
	for _, g := range r.Given {
		if g.Kind.Over {
			w.writes(g.Value, paths.Overwrites)
		}
	}
	w.readsAll(args)
	return r.Rest, r.Bad == ""
}

// doubts notes an option that may be the value of the one before it, and not done.
func (w *walk) doubts(name string, r word.Reading) {
	if r.Doubt != "" {
		w.unknown("%s is given %s where the value of another option stands", name, r.Doubt)
	}
}
