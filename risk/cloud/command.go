package cloud

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/finding"
)

// Unseen stands in an argv for a word that is not known before the command runs.
const Unseen = "\x00"

// aliases are programs that take the words of another.
var aliases = map[string]string{"oc": "kubectl", "tofu": "terraform", "terragrunt": "terraform", "podman": "docker", "nerdctl": "docker", "podman-compose": "docker-compose"}

// elsewhere are the options by which even a verb that only reads runs a program,
// writes, or talks to whom the command chooses.
var elsewhere = map[string]*regexp.Regexp{
	"docker":    regexp.MustCompile(`^(-H|--host|--config|--context|-c$|--url|--connection|--tls)|^(https?|git|ssh|oci|github|file)[.:@]|^git@`),
	"kubectl":   regexp.MustCompile(`^(-s$|-s=|--server|--kubeconfig|--token|--as|--user$|--user=|--plugin)`),
	"helm":      regexp.MustCompile(`^(--post-renderer|--kube|--registry-config|--repository-config)`),
	"systemctl": regexp.MustCompile(`^(-H|--host|-M|--machine|--root|--image)`),
	"terraform": regexp.MustCompile(`^-(out|generate-config-out|destroy|chdir=(/|~|.*\.\.|$))`),
	"aws":       regexp.MustCompile(`^--(endpoint-url|cli-input|generate-cli)`),
	"vault":     regexp.MustCompile(`^-(address|agent-address|ca-|client-|tls-|output-|header|wrap-ttl)`),
	"argocd":    regexp.MustCompile(`^--(server|config|core|auth-token|grpc|insecure|local|plaintext|kube|port-forward)`),
	"doctl":     regexp.MustCompile(`^--(api-url|access-token|config)`),
	"pulumi":    regexp.MustCompile(`^(-C$|--cwd|--exec|--tracing)`),
	"az":        regexp.MustCompile(`^--(url|uri)`),
	"bq":        regexp.MustCompile(`^--?(api|bigqueryrc|cred|service|disc|flag|ca_|proxy|mtls|oauth|log|udf|dest|repl|append|sched|target)`),
	"gcloud":    regexp.MustCompile(`^--(flags-file|access-token-file|log-file)`),
}

// A command is one command line, cut into what matters.
type command struct {
	program string
	table   table
	words   []string // neither options nor their values, as far as they are known
	options []string
	odd     string // an option before the verb that is not known
	taken   bool   // --dry-run and the like may be the value of the option before it
}

// Command judges the command line of a program of clouds and clusters. It
// reports false for any other program. Words that are not known before the
// command runs are written Unseen.
func Command(argv []string) (sallyport.Risk, bool) {
	if len(argv) == 0 {
		return sallyport.Risk{}, false
	}
	name := argv[0]
	program := name
	if a, ok := aliases[name]; ok {
		program = a
	}
	t, ok := tables()[program]
	if !ok || program == "aws-s3" {
		return sallyport.Risk{}, false
	}
	var l finding.List
	if Help(argv) {
		judge(&l, reads, name+" "+argv[len(argv)-1], nil)
		return l.Risk(), true
	}
	c := cut(program, t, argv[1:])
	c.judge(&l, name)
	return l.Risk(), true
}

var plainWord = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// Help tells a command line that only asks for help or the version. Which
// sub-commands may stand before --help depends on the program: of docker run
// IMAGE --help the image is run, and kubectl and helm run plugins by any name.
func Help(argv []string) bool {
	program := cmp.Or(aliases[argv[0]], argv[0])
	t, ok := tables()[program]
	if !ok || len(argv) < 2 {
		return false
	}
	last, subs := argv[len(argv)-1], argv[1:len(argv)-1]
	if len(subs) == 0 {
		return slices.Contains([]string{"--version", "--help", "-h", "version", "help"}, last)
	}
	if slices.ContainsFunc(subs, func(s string) bool { return !plainWord.MatchString(s) }) {
		return false
	}
	switch program {
	case "aws":
		return last == "help" && len(subs) <= 2
	case "gcloud", "az":
		return last == "--help"
	case "terraform", "systemctl":
		return (last == "--help" || last == "-help") && len(subs) == 1
	}
	_, verb := t.verbs[strings.Join(subs, "-")]
	return last == "--help" && verb
}

func cut(program string, t table, args []string) command {
	c := command{program: program, table: t}
	verb := false
	for i := 0; i < len(args); i++ {
		a := args[i]
		if program == "az" && len(c.words) > 0 && strings.HasPrefix(a, "-") {
			c.options = append(c.options, args[i:]...) // its arguments are all options
			break
		}
		if !strings.HasPrefix(a, "-") || a == "-" {
			if !verb && strings.ContainsAny(a, "*?[") {
				a = Unseen // the shell may make anything of it
			}
			c.words = append(c.words, a)
			if !verb {
				_, found := c.verb()
				verb = found > 0
			}
			continue
		}
		c.options = append(c.options, a)
		option, _, joined := strings.Cut(a, "=")
		c.taken = c.taken || strings.HasPrefix(a, "--dry") && i > 0 && mayTake(args[i-1])
		switch {
		case t.valued[option]:
			if !joined && i+1 < len(args) {
				i++
				c.options = append(c.options, args[i])
				c.taken = c.taken || strings.HasPrefix(args[i], "--dry")
			}
		case t.flag[option] || verb || joined:
		default:
			c.odd = option
		}
	}
	return c
}

// verb finds the class of the first words that are a verb, and after how many
// words it ends; 0 if there is none.
func (c command) verb() (class, int) {
	skip := 0
	switch c.program {
	case "aws":
		if len(c.words) < 2 {
			return unknown, 0
		}
		return c.aws()
	case "az":
		return c.lastVerb()
	case "gcloud":
		skip = len(c.words) - 1
	}
	for i := 0; i <= skip && i < len(c.words); i++ {
		if c.words[i] == Unseen {
			return unknown, 0
		}
		// Sub-commands are words of their own; only clouds spell verbs in one.
		ws := c.words[i:min(i+3, len(c.words))]
		if c.program == "gcloud" {
			ws = Words(c.words[i])
		}
		if found, n := c.table.class(ws); n > 0 {
			if c.program == "gcloud" {
				n = 1
			}
			return found, i + n
		}
	}
	return unknown, 0
}

func (c command) aws() (class, int) {
	service, op := c.words[0], c.words[1]
	if service == Unseen || op == Unseen {
		return unknown, 0
	}
	t := c.table
	switch service {
	case "s3":
		if op == "cp" && len(c.words) == 4 && strings.HasPrefix(c.words[2], "s3://") && c.words[3] == "-" {
			return reads, 2 // to standard output
		}
		t = tables()["aws-s3"]
	case "configure":
		if op == "list" || op == "list-profiles" {
			return reads, 2
		}
		if op == "get" {
			return secrets, 2
		}
		return writes, 2
	case "sts":
		if op == "get-caller-identity" {
			return reads, 2
		}
	}
	found, n := t.class(Words(op))
	if n == 0 {
		return unknown, 0
	}
	return found, 2
}

// lastVerb is for az, whose groups come first and whose verb comes last. Of the
// words before the first option none is an argument.
func (c command) lastVerb() (class, int) {
	for _, w := range c.words {
		if w == Unseen {
			return unknown, 0
		}
	}
	all := Words(strings.Join(c.words, "-"))
	for from := range all {
		for _, n := range []int{3, 2} {
			if from+n == len(all) {
				if found, m := c.table.class(all[from:]); m == n {
					return found, len(c.words)
				}
			}
		}
	}
	if len(c.words) == 0 {
		return unknown, 0
	}
	found, n := c.table.class(Words(c.words[len(c.words)-1]))
	if n == 0 {
		return unknown, 0
	}
	if found == reads && slices.Contains(c.words, "secret") && c.words[len(c.words)-1] != "list" {
		found = secrets
	}
	return found, len(c.words)
}

func (c command) judge(l *finding.List, name string) {
	found, n := c.verb()
	if found == reads && c.showsSecrets() {
		found = secrets
	}
	what := strings.TrimSpace(name + " " + strings.Join(c.words[:min(len(c.words), max(n, 1))], " "))
	what = strings.ReplaceAll(what, Unseen, "…")
	rest := c.words[min(n, len(c.words)):]
	var about []string
	for _, w := range c.words {
		about = append(about, Words(w)...)
	}
	for _, w := range rest {
		if w != Unseen {
			l.Object(w)
		}
	}
	if c.odd != "" && found != loses {
		judge(l, unknown, what, about)
		l.Add(sallyport.Critical, "%s is given option %s before its verb, which is not known", name, c.odd)
		return
	}
	shows := c.program == "kubectl" && strings.HasSuffix(what, " config view") // its --raw only shows
	if re := elsewhere[c.program]; re != nil && !shows && slices.ContainsFunc(c.options, re.MatchString) && found != loses {
		judge(l, unknown, what, about)
		l.Add(sallyport.Critical, "%s is given an option that can run a program, write, or reach elsewhere", what)
		return
	}
	if c.dryRun() && (found == writes || found == loses) || c.program == "gcloud" && c.onlyShown() {
		found = reads
	}
	judge(l, found, what, about)
	c.special(l, found, what, rest)
}

// onlyShown: gcloud compute ssh --dry-run prints the command that it would run.
func (c command) onlyShown() bool {
	line := strings.Join(c.words[:min(2, len(c.words))], " ")
	return (line == "compute ssh" || line == "compute scp") && slices.Contains(c.options, "--dry-run")
}

// dryRun: exactly one option says so, in the way that the program knows, and
// nothing takes it back.
func (c command) dryRun() bool {
	if c.program == "terraform" {
		return c.words[0] == "fmt" && slices.ContainsFunc(c.options, func(o string) bool {
			return strings.TrimLeft(o, "-") == "check" || strings.TrimLeft(o, "-") == "write=false"
		}) &&
			!slices.ContainsFunc(c.options, func(o string) bool {
				return strings.HasPrefix(strings.TrimLeft(o, "-"), "check=") || strings.TrimLeft(o, "-") == "write" || strings.TrimLeft(o, "-") == "write=true"
			})
	}
	n, good := 0, false
	for _, o := range c.options {
		switch {
		case strings.HasPrefix(o, "--dry-run"), strings.HasPrefix(o, "--dryrun"), strings.HasPrefix(o, "--no-dry"):
			n++
			good = c.dryRuns(o)
		}
	}
	return n == 1 && good && !c.taken
}

// plain are options that never take a value, of the programs that can be asked to do
// nothing: what follows them is not their value.
var plain = regexp.MustCompile(`^--(all|all-namespaces|atomic|debug|force|install|now|only-show-errors|overwrite|prune|quiet|recursive|server-side|wait|delete|no-progress|no-hooks|create-namespace|keep-history)$|^-[ARdikqw]+$`)

// mayTake tells a word that may be an option which takes the next one as its value.
func mayTake(word string) bool {
	return len(word) > 1 && word[0] == '-' && !strings.Contains(word, "=") && !plain.MatchString(word)
}

func (c command) dryRuns(option string) bool {
	switch c.program {
	case "kubectl":
		return option == "--dry-run=client" || option == "--dry-run=server"
	case "helm":
		return option == "--dry-run" || option == "--dry-run=client" || option == "--dry-run=server"
	case "aws":
		switch c.words[0] {
		case "s3":
			return option == "--dryrun"
		case "ec2":
			return option == "--dry-run"
		}
	}
	return false
}
