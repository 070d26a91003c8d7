package shell

import (
	"regexp"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/known"
	"sallyport.dev/sallyport/risk/shell/verbs"
	"sallyport.dev/sallyport/risk/shell/word"
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
		w.unknown("sends a request by %s, whose words are not read here", name)
	case "psql", "sqlite3", "mysql", "mariadb", "redis-cli", "mongosh", "mongo":
		w.database(name, args)
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

// dotLooks are the commands of SQLite's shell that only show something.
var dotLooks = regexp.MustCompile(`^\.(tables|schema|databases|indexes|indices|fullschema)(\s+[\w%.]+)?$`)

// clientOptions of the databases' clients change how they log in and print.
var clientOptions = map[string]*regexp.Regexp{
	"sqlite":   regexp.MustCompile(`^--?(readonly|json|csv|header|noheader|column|line|list|box|table|markdown|html|tabs|quote|batch|bail|safe|separator|nullvalue)$`),
	"postgres": regexp.MustCompile(`^(-[hpUdFPvRT]\S*|-[tAxqXwWn1EabeS0z]+|--(host|port|username|dbname|field-separator|pset|set|variable|record-separator)(=.*)?|--(tuples-only|no-align|expanded|quiet|no-psqlrc|no-password|password|csv|html|single-transaction))$`),
	"mysql":    regexp.MustCompile(`^(-[huPDpS]\S*|-[BNstErAn]+|--(host|user|port|database|password|protocol|socket|default-character-set)(=.*)?|--(batch|skip-column-names|table|vertical|raw|silent|ssl|compress|no-auto-rehash))$`),
}

// clientQuery finds -tAc and -Ne: the next word is SQL.
var clientQuery = map[string]*regexp.Regexp{
	"sqlite": regexp.MustCompile(`^-cmd$`), "postgres": regexp.MustCompile(`^-[tAxqXwWn1EabeS0z]*c$`), "mysql": regexp.MustCompile(`^-[BNstErAn]*e$`),
}

func clientOption(dialect, text string) bool { return clientOptions[dialect].MatchString(text) }

// slashLooks are those of psql.
var slashLooks = regexp.MustCompile(`^\\(l|conninfo|d[tvisnfumpTx]?)[+S]*(\s+[\w.*]+)?$`)

// database judges the SQL that a client program is given.
func (w *walk) database(name string, args []arg) {
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
	var queries []arg
	plain := 0
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case clientQuery[dialect].MatchString(a.Text) || a.Text == "--command" || a.Text == "--execute":
			if i++; i < len(args) {
				queries = append(queries, args[i])
			}
		case strings.HasPrefix(a.Text, "--command=") || strings.HasPrefix(a.Text, "--execute="):
			_, q, _ := strings.Cut(a.Text, "=")
			queries = append(queries, arg{Text: q, Known: a.Known})
		case a.Text == "-f" || a.Text == "--file" || a.Text == "-o" || a.Text == "-init" || a.Loose:
			w.hide()
			w.unknown("%s is given %s: what it runs or writes cannot be seen here", name, a.Text)
			i++
		case dialect == "sqlite" && !a.Option():
			if plain++; plain > 1 {
				queries = append(queries, a)
			} else {
				w.found.Object(a.Text)
			}
		case a.Option() && !clientOption(dialect, a.Text):
			w.hide()
			w.unknown("%s is given option %s, which is not known to be harmless", name, a.Text)
		}
	}
	if len(queries) == 0 {
		w.hide()
		w.unknown("%s runs what it reads on its input", name)
		return
	}
	for _, q := range queries {
		if q.Known && (dialect == "sqlite" && dotLooks.MatchString(q.Text) || name == "psql" && slashLooks.MatchString(q.Text)) {
			continue
		}
		if !q.Known || w.judge.SQL == nil {
			w.unknown("%s is given SQL that is made at run time", name)
			continue
		}
		r := w.judge.SQL(dialect, q.Text)
		if w.found.Merge(r); r.Irreversible {
			w.found.Effect(sallyport.EffectDelete)
		}
	}
}

func (w *walk) store(name string, args []arg) {
	if name != "redis-cli" {
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
	for _, g := range r.Given {
		if g.Kind.Over {
			w.writes(g.Value, paths.Overwrites)
		}
	}
	w.readsAll(args)
	return r.Rest, r.Bad == ""
}
