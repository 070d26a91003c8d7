package shell

import (
	"regexp"
	"strings"

	"sallyport.dev/sallyport"
)

// gitReads are the sub-commands that only show, with options none of which
// writes or runs anything (checked apart).
var gitReads = set(`status log diff show blame shortlog describe rev-parse rev-list ls-files ls-tree ls-remote cat-file name-rev
	merge-base cherry count-objects var version help whatchanged for-each-ref show-ref show-branch check-ignore diff-tree diff-index diff-files grep
	range-diff verify-commit verify-tag fsck annotate get-tar-commit-id`)

var gitWrites = set(`add commit merge rebase cherry-pick revert pull fetch clone init switch mv am apply submodule worktree notes bisect remote
	format-patch archive bundle read-tree write-tree commit-tree update-index hash-object mktag sparse-checkout lfs maintenance repack pack-refs range push
	checkout restore reset stash branch tag clean config rm reflog gc prune`)

// gitActs are options of any sub-command that run a program or write a file.
var gitActs = []string{"--upload-pack", "--receive-pack", "--exec", "--ext-diff", "--textconv", "--filters", "--output", "--open-files-in-pager", "-O", "--config", "--template", "--separate-git-dir"}

func (w *walk) git(args []arg) {
	for len(args) > 0 && args[0].option() {
		a := args[0]
		switch {
		case a.loose:
			w.unknown("git is given a word that is made at run time")
			return
		case a.text == "-C" && len(args) > 1:
			args = args[2:]
			continue
		case a.text == "--no-pager" || a.text == "-P" || a.text == "--no-optional-locks" || a.text == "--bare" || a.text == "--literal-pathspecs":
		case a.text == "--version" || a.text == "--help":
			return
		default:
			w.opaque = true
			w.unknown("git is given %s, which can make it run other programs", a.text)
			if a.text == "-c" && len(args) > 1 {
				args = args[1:]
			}
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	if !args[0].literal() {
		w.unknown("git is given a word that is made at run time")
		return
	}
	verb, args := args[0].text, args[1:]
	if onlyHelp(args) {
		return
	}
	w.gitOptions(verb, args)
	switch {
	case w.gitLoses(verb, args):
	case gitReads[verb]:
	case gitShows(verb, args):
	case gitWrites[verb]:
		w.found.Add(sallyport.High, "git %s changes the repository or its files", verb)
	default:
		w.opaque = true
		w.unknown("git %s is not known to be harmless: it may be an alias", verb)
	}
}

// gitOptions finds options that make a sub-command run a program or write a file.
func (w *walk) gitOptions(verb string, args []arg) {
	for _, a := range args {
		if verb == "log" && (a.text == "-O" || strings.HasPrefix(a.text, "--output-indicator")) || verb == "commit" && strings.HasPrefix(a.text, "--template") {
			continue
		}
		for _, bad := range gitActs {
			if strings.HasPrefix(a.text, bad) || len(a.text) > 5 && strings.HasPrefix(a.text, "--") && strings.HasPrefix(bad, cutAt(a.text, "=")) {
				w.opaque = true
				w.unknown("git %s is given %s, which can run a program or write a file", verb, a.text)
			}
		}
		if a.loose && verb != "add" && verb != "commit" {
			w.unknown("git %s is given a word that is made at run time", verb)
		}
		if strings.HasPrefix(a.text, "ext::") {
			w.opaque = true
			w.unknown("git is given an address that runs a program")
		}
	}
}

func cutAt(s, mark string) string {
	s, _, _ = strings.Cut(s, mark)
	return s
}

func has(args []arg, words ...string) bool {
	for _, a := range args {
		for _, word := range words {
			if a.text == word || strings.HasPrefix(word, "--") && strings.HasPrefix(a.text, word+"=") {
				return true
			}
			if len(word) == 2 && word[0] == '-' && len(a.text) > 2 && a.text[0] == '-' && a.text[1] != '-' && strings.Contains(a.text, word[1:]) {
				return true
			}
		}
	}
	return false
}

// gitLoses finds what loses commits or work.
func (w *walk) gitLoses(verb string, args []arg) bool {
	lost := losesWork(verb, args)
	if lost == "" {
		lost = losesHistory(verb, args)
	}
	if lost == "" {
		return false
	}
	w.found.Lost("git %s %s", verb, lost)
	return true
}

// looksLikeFile tells main.go from main: git checkout takes both.
var looksLikeFile = regexp.MustCompile(`\.[a-zA-Z]+$`)

const uncommitted = "throws away changes that are not committed"

// losesWork is about files and what is not committed yet.
func losesWork(verb string, args []arg) string {
	lost := ""
	switch verb {
	case "reset":
		if has(args, "--hard", "--merge", "--keep") {
			lost = uncommitted
		}
	case "clean":
		if !has(args, "-n", "--dry-run") {
			lost = "deletes files that git does not keep"
		}
	case "checkout":
		if has(args, "--", "-f", "--force", ".", "-B") {
			lost = uncommitted
		}
		for _, a := range args {
			if looksLikeFile.MatchString(a.text) {
				lost = uncommitted
			}
		}
	case "switch":
		if has(args, "-f", "--force", "--discard-changes", "-C") {
			lost = uncommitted
		}
	case "restore":
		if !has(args, "--staged", "-S") || has(args, "--worktree", "-W") {
			lost = uncommitted
		}
	case "rm":
		if !has(args, "--cached") || has(args, "-f", "--force") {
			lost = "deletes files"
		}
	}
	return lost
}

// losesHistory is about commits, names of commits and what others can see.
func losesHistory(verb string, args []arg) string {
	lost, first := "", ""
	if len(args) > 0 {
		first = args[0].text
	}
	switch verb {
	case "push":
		if has(args, "--force", "-f", "--force-with-lease", "--mirror", "--delete", "-d", "--prune") {
			lost = "overwrites or deletes what others can see"
		}
		for _, a := range args {
			if strings.HasPrefix(a.text, "+") || strings.HasPrefix(a.text, ":") {
				lost = "overwrites or deletes what others can see"
			}
		}
	case "stash":
		if first == "drop" || first == "clear" {
			lost = "throws away stashed work"
		}
	case "branch", "tag":
		if has(args, "-D", "-d", "--delete", "-f", "--force", "-M") {
			lost = "deletes or overwrites a " + verb
		}
	case "reflog":
		if first == "expire" || first == "delete" {
			lost = "throws away the way back to old commits"
		}
	case "gc", "prune", "filter-branch", "filter-repo", "update-ref", "replace":
		lost = "can throw away commits"
	case "worktree":
		if first == "remove" || first == "prune" {
			lost = "deletes a work tree"
		}
	case "remote":
		if first == "prune" || first == "remove" || first == "rm" {
			lost = "removes a remote"
		}
	}
	return lost
}

// gitShows finds sub-commands that only show when they are used so.
func gitShows(verb string, args []arg) bool {
	first := ""
	if len(args) > 0 {
		first = args[0].text
	}
	switch verb {
	case "branch":
		return len(args) == 0 || has(args, "-a", "-r", "-v", "-vv", "--list", "-l", "--show-current", "--all", "--contains", "--merged", "--no-merged") && !has(args, "-m", "-c", "-u", "--edit-description")
	case "tag":
		return len(args) == 0 || has(args, "-l", "--list", "--contains", "--points-at") && !has(args, "-a", "-s", "-m")
	case "remote":
		return len(args) == 0 || first == "-v" || first == "show" || first == "get-url"
	case "stash":
		return first == "list" || first == "show"
	case "config":
		return has(args, "--list", "-l", "--get", "--get-all", "--get-regexp") && !has(args, "--unset", "--add", "--replace-all", "-e", "--edit")
	case "reflog":
		return len(args) == 0 || first == "show"
	case "worktree", "notes", "bundle":
		return first == "list" || first == "show" || first == "verify"
	case "submodule":
		return len(args) == 0 || first == "status"
	case "clean":
		return has(args, "-n", "--dry-run") && !has(args, "-f", "--force")
	}
	return false
}
