package shell

import (
	"cmp"
	"regexp"
	"strings"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk/paths"
	"sallyport.dev/sallyport/risk/shell/known"
)

// quirk judges what an entry of the list cannot say: what words that are no
// options do.
func (w *walk) quirk(u use, args []arg) {
	switch u.name {
	case "printenv", "set":
		w.variables(u, args)
	case "jq", "ps":
		if known.ShowsEnvironment(u.name, args) {
			w.environmentRead()
		}
	case "printf":
		if len(args) > 0 && (args[0].Loose || strings.HasPrefix(args[0].Text, "-v")) {
			w.unknown("printf sets a variable")
		}
	case "uniq", "xxd":
		if len(u.rest) > 1 {
			w.writes(u.rest[1], paths.Overwrites)
		}
	case "less", "more", "most", "man":
		for _, a := range u.rest {
			if strings.HasPrefix(a.Text, "+") && !pagerStart.MatchString(a.Text) || strings.HasPrefix(a.Text, "-P") {
				w.unknown("%s is given a command to run when it starts", u.name)
			}
		}
	case "cd", "pushd":
		for _, a := range u.rest {
			w.enters(a)
		}
	case "chmod":
		w.setuid(u.rest)
	case "kill", "pkill", "killall":
		if len(args) > 0 && args[len(args)-1].Text == "-1" {
			w.unknown("ends every process")
		}
	case "dmesg":
		if len(u.rest) > 0 {
			w.unknown("dmesg is given words that are not known")
		}
	}
}

func (w *walk) environmentRead() {
	w.secret = cmp.Or(w.secret, "the environment")
	w.found.Add(sallyport.Medium, "prints the environment, which may hold secrets")
}

func (w *walk) variables(u use, args []arg) {
	switch {
	case u.name == "printenv" && len(args) > 0, u.name == "set" && len(args) > 0:
	default:
		w.environmentRead()
	}
}

// enters notes the folder that relative names start from.
func (w *walk) enters(a arg) {
	const most = 16
	if a.Text != "" && a.Text != "-" && len(w.folders) < most {
		w.folders = append(w.folders, a.Text)
		for _, f := range w.folders[:len(w.folders)-1] {
			if !strings.HasPrefix(a.Text, "/") && len(w.folders) < most {
				w.folders = append(w.folders, strings.TrimSuffix(f, "/")+"/"+a.Text)
			}
		}
	}
}

// pagerStart are the places where a pager may be told to begin: a line, a search, the end.
var pagerStart = regexp.MustCompile(`^\+(\d+|G|F|/[\w .:=-]+)$`)

var setuidMode = regexp.MustCompile(`^0*[2467][0-7]{3}$|^[ugoa]*[+=][rwxXt]*s`)

func (w *walk) setuid(args []arg) {
	for _, a := range args[:min(1, len(args))] {
		if setuidMode.MatchString(a.Text) {
			w.unknown("lets a program act with its owner's privileges")
		}
	}
}
