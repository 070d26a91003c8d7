// Package client reads the command lines and the input of the databases' own
// clients: what of it is SQL, what are orders to the client itself.
package client

import (
	"regexp"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// A Call is what a client is told to do.
type Call struct {
	Queries []word.Word
	Opaque  string // the first word by which it may run or write what cannot be seen
	Odd     string // the first option that is not known
	Objects []string
}

// A dialect is how one client reads its words.
type dialect struct {
	options *regexp.Regexp // that change how it logs in and prints
	valued  *regexp.Regexp // those of them whose value is the next word
	query   *regexp.Regexp // after it comes SQL: -tAc, -Ne
	orders  *regexp.Regexp // to the client itself, that only show something
}

var dialects = map[string]dialect{
	"sqlite": {
		options: regexp.MustCompile(`^--?(readonly|json|csv|header|noheader|column|line|list|box|table|markdown|html|tabs|quote|batch|bail|safe|separator|nullvalue)$`),
		valued:  regexp.MustCompile(`^--?(separator|nullvalue)$`),
		query:   regexp.MustCompile(`^-cmd$`),
		orders:  regexp.MustCompile(`^\.(tables|schema|databases|indexes|indices|fullschema|mode|headers?|width|nullvalue|separator|timer|explain|stats|limit|show)(\s+[\w%.," |-]+)?$`),
	},
	"postgres": {
		options: regexp.MustCompile(`^(-[hpUdFPvRT]\S*|-[tAxqXwWn1EabeS0z]+|--(host|port|username|dbname|field-separator|pset|set|variable|record-separator)(=.*)?|--(tuples-only|no-align|expanded|quiet|no-psqlrc|no-password|password|csv|html|single-transaction))$`),
		valued:  regexp.MustCompile(`^(-[hpUdFPvRT]|-[tAxqXwWn1EabeS0z]+[hpUdFPvRT]|--(host|port|username|dbname|field-separator|pset|set|variable|record-separator))$`),
		query:   regexp.MustCompile(`^-[tAxqXwWn1EabeS0z]*c$`),
		orders:  regexp.MustCompile(`^\\(l|conninfo|timing|x|q|pset pager off|pset format \w+|d[tvisnfumpTx]?)[+S]*(\s+[\w.*]+)?$`),
	},
	"mysql": {
		options: regexp.MustCompile(`^(-[huPDpS]\S*|-[BNstErAn]+|--(host|user|port|database|password|protocol|socket|default-character-set)(=.*)?|--(batch|skip-column-names|table|vertical|raw|silent|ssl|compress|no-auto-rehash)|--defaults-(extra-)?file=(~|/root|/etc|/etc/mysql)/\.?my\.cnf)$`),
		valued:  regexp.MustCompile(`^(-[huPDS]|--(host|user|port|database|protocol|socket|default-character-set))$`),
		query:   regexp.MustCompile(`^-[BNstErAn]*e$`),
	},
}

// Read reads the words behind a client's name.
func Read(name string, args []word.Word) Call {
	d, c, plain := dialects[name], Call{}, 0
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case d.query.MatchString(a.Text) || a.Text == "--command" || a.Text == "--execute":
			if i++; i < len(args) {
				c.Queries = append(c.Queries, args[i])
			}
		case strings.HasPrefix(a.Text, "--command=") || strings.HasPrefix(a.Text, "--execute="):
			_, q, _ := strings.Cut(a.Text, "=")
			c.Queries = append(c.Queries, word.Word{Text: q, Known: a.Known})
		case a.Text == "-f" || a.Text == "--file" || a.Text == "-o" || a.Text == "-init" || a.Loose:
			if c.Opaque == "" {
				c.Opaque = "one that is made at run time"
				if a.Text != "" {
					c.Opaque = a.Text
				}
			}
			i++
		case d.valued.MatchString(a.Text) && a.Known:
			i++ // whatever it is, the client takes it for the value
		case name == "sqlite" && !a.Option():
			if plain++; plain > 1 {
				c.Queries = append(c.Queries, a)
			} else {
				c.Objects = append(c.Objects, a.Text)
			}
		case a.Option() && !d.options.MatchString(a.Text) && c.Odd == "":
			c.Odd = a.Text
		}
	}
	return c
}

var vertical = regexp.MustCompile(`\\[Gg]\s*;?\s*$`)

// mysqlOrders are the orders that MySQL's client takes at the start of a line.
var mysqlOrders = regexp.MustCompile(`(?im)^\s*(system|source|tee|notee|pager|nopager|edit|ego|go|connect|delimiter|charset|rehash|status|use|help|prompt|print|query_attributes|resetconnection|ssl_session_data_print|clear|exit|quit|warnings|nowarning)\b`)

// Script returns the SQL of what a client is given on its input or as a query,
// without its own orders. It reports false where one of them does more than show
// something, or where it cannot be told which text is an order.
func Script(name, text string) (sql string, ok bool) {
	d := dialects[name]
	switch name {
	case "mysql":
		text = vertical.ReplaceAllString(text, "")
		return text, !strings.Contains(text, `\`) && !mysqlOrders.MatchString(text)
	case "postgres", "sqlite":
		mark := `\`
		if name == "sqlite" {
			mark = "."
		}
		var rest []string
		for line := range strings.SplitSeq(text, "\n") {
			order := strings.TrimSpace(line)
			switch {
			case name == "sqlite" && order != line && strings.HasPrefix(order, mark):
				return "", false // within a statement?
			case !strings.HasPrefix(order, mark):
				rest = append(rest, line)
			case !d.orders.MatchString(order) || strings.TrimSpace(strings.Join(rest, "")) != "" && !strings.HasSuffix(strings.TrimSpace(strings.Join(rest, "\n")), ";"):
				return "", false
			}
		}
		sql = strings.TrimSpace(strings.Join(rest, "\n"))
		return sql, name == "sqlite" || !strings.Contains(sql, `\`)
	}
	return "", false
}
