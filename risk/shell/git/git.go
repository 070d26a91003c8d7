// Package git knows which uses of git only show, and which lose work, commits,
// or what others can see.
package git

import (
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// reads are the sub-commands that only show, with options none of which writes
// or runs anything (they are listed with the programs).
var reads = word.Set(`status log diff show blame shortlog describe rev-parse rev-list ls-files ls-tree ls-remote cat-file name-rev
	merge-base cherry count-objects var version whatchanged for-each-ref show-ref show-branch check-ignore check-attr diff-tree diff-index diff-files grep
	range-diff verify-commit verify-tag fsck annotate get-tar-commit-id stripspace check-ref-format check-mailmap`)

var writes = word.Set(`add commit merge rebase cherry-pick revert pull fetch clone init switch mv am apply submodule worktree notes bisect remote
	format-patch archive bundle read-tree write-tree commit-tree update-index hash-object mktag sparse-checkout lfs maintenance repack pack-refs range push
	checkout restore reset stash branch tag clean config rm reflog gc prune help`)

// Reads tells a sub-command that only shows.
func Reads(verb string) bool { return reads[verb] }

// HandsOn tells a sub-command that gives its options to log or diff, which can write
// files.
func HandsOn(verb string) bool {
	return verb == "stash" || verb == "reflog" || verb == "bisect" || verb == "rerere"
}

// Writes tells a sub-command that is known to change something.
func Writes(verb string) bool { return writes[verb] }

// acts are options of any sub-command that run a program, or read another
// configuration.
var acts = []string{"--upload-pack", "--receive-pack", "--exec", "--ext-diff", "--textconv", "--filters", "--open-files-in-pager", "--config", "--template", "--separate-git-dir",
	"--edit-description", "--tool", "--extcmd", "--gpg-sign", "--web", "--show-trace", "--command", "--strategy-option", "--reference"}

// shortActs are the letters that do so, by sub-command.
var shortActs = map[string]string{"clone": "uc", "rebase": "x", "grep": "O", "difftool": "x", "submodule": "c", "help": "wimc", "ls-remote": "u", "fetch": "u", "log": "", "config": "e"}

// Acts returns the first word by which a sub-command runs a program, or "".
func Acts(verb string, args []word.Word) string {
	if first := sub(args); verb == "bisect" && first == "run" || verb == "submodule" && first == "foreach" {
		return first
	}
	for _, a := range args {
		if verb == "commit" && strings.HasPrefix(a.Text, "--template") {
			continue
		}
		name, _, _ := strings.Cut(a.Text, "=")
		for _, bad := range acts {
			if strings.HasPrefix(a.Text, bad) || len(name) > 4 && strings.HasPrefix(name, "--") && strings.HasPrefix(bad, name) {
				return a.Text
			}
		}
		if len(a.Text) > 1 && a.Text[0] == '-' && a.Text[1] != '-' && strings.ContainsAny(a.Text[1:], shortActs[verb]) && shortActs[verb] != "" {
			return a.Text
		}
		if strings.HasPrefix(a.Text, "ext::") || strings.HasPrefix(a.Text, "fd::") {
			return a.Text
		}
	}
	return ""
}

// runnable are the settings by which git runs programs.
var runnable = regexp.MustCompile(`(?i)^(alias|core\.(pager|editor|sshcommand|fsmonitor|hookspath|askpass|gitproxy|attributesfile|worktree|alternaterefscommand)|pager|sequence|diff|difftool|merge|mergetool|filter|credential|gpg|interactive|browser|man|web|include|includeif|uploadpack|receive|remote\..*\.(uploadpack|receivepack|vcs|proxy)|url|protocol|sendemail|init\.templatedir|submodule|trailer|http|https|safe|help)(\.|$)`)

// Plants tells a use of git config that makes git run something later, or reach
// somewhere else.
func Plants(verb string, args []word.Word) bool {
	return verb == "config" && !Shows(verb, args) && slices.ContainsFunc(args, func(a word.Word) bool {
		return a.Loose || runnable.MatchString(a.Text) || !a.Known
	}) || (verb == "remote" || verb == "submodule") && slices.ContainsFunc(args, func(a word.Word) bool { return strings.Contains(a.Text, "::") })
}

// Loses says what a sub-command loses, or "".
func Loses(verb string, args []word.Word) string {
	if lost := losesWork(verb, args); lost != "" {
		return lost
	}
	return losesHistory(verb, args)
}

// aBranch finds names that hardly are those of files.
var aBranch = regexp.MustCompile(`^(main|master|develop|dev|trunk|staging|production|-|(HEAD|@)([~^@].*)?|[0-9a-f]{7,40}|(origin|upstream)/[\w./-]+|(feature|fix|bugfix|hotfix|release)/[\w-]+)$`)

// keepsFiles tells a checkout that changes the branch and refuses to lose work
// from one that writes files over. git takes both for a single name; only some
// names leave no doubt.
func keepsFiles(args []word.Word) bool {
	if has(args, "--", "-f", "--force", "-B", "--ours", "--theirs", "-m", "--merge", "-p", "--patch", "--pathspec-from-file") {
		return false
	}
	for _, a := range args {
		switch {
		case a.Is("-b", "-qb", "--orphan", "--help", "-h"):
			return true
		case a.Option() && a.Literal():
		case !a.Literal() || !aBranch.MatchString(a.Text):
			return false
		}
	}
	return true
}

const uncommitted = "throws away changes that are not committed"

// losesWork is about files and what is not committed yet.
func losesWork(verb string, args []word.Word) string {
	lost, first := "", sub(args)
	switch verb {
	case "reset":
		if has(args, "--hard", "--merge", "--keep") {
			lost = uncommitted
		}
	case "clean":
		if !word.Has(own(verb, args), "-n", "--dry-run") {
			lost = "deletes files that git does not keep"
		}
	case "checkout":
		if !keepsFiles(args) {
			lost = uncommitted
		}
	case "switch":
		if has(args, "-f", "--force", "--discard-changes", "-C") {
			lost = uncommitted
		}
	case "restore":
		if !word.Has(own(verb, args), "--staged", "-S") || has(args, "--worktree", "-W") {
			lost = uncommitted
		}
	case "rm":
		if has(args, "-f", "--force") {
			lost = "deletes files, with what is not committed"
		}
	case "apply", "am", "checkout-index", "read-tree":
		if !word.Has(own(verb, args), "--check", "--stat", "--numstat", "--summary") || has(args, "--abort", "--skip") {
			lost = "changes files over what is not committed"
		}
	case "merge", "rebase", "cherry-pick", "revert", "bisect":
		if has(args, "--abort", "--skip", "--quit") || first == "reset" {
			lost = "throws away work in progress"
		}
	case "submodule":
		if first == "deinit" || has(args, "-f", "--force") {
			lost = uncommitted
		}
	case "bundle":
		if first == "create" {
			lost = "writes over a file"
		}
	case "archive", "format-patch":
		if has(args, "-o", "--output", "--output-directory") || verb == "format-patch" && !word.Has(own(verb, args), "--stdout") {
			lost = "writes files over others of the same name"
		}
	case "notes":
		if first == "remove" || first == "prune" || has(args, "-f", "--force") {
			lost = "throws notes away"
		}
	case "mv":
		if has(args, "-f", "--force") {
			lost = "moves a file over another"
		}
	}
	return lost
}

// losesHistory is about commits, names of commits and what others can see.
func losesHistory(verb string, args []word.Word) string {
	lost, first := "", sub(args)
	switch verb {
	case "push":
		if has(args, "--force", "-f", "--force-with-lease", "--mirror", "--delete", "-d", "--prune") {
			lost = "overwrites or deletes what others can see"
		}
		for _, a := range args {
			if strings.HasPrefix(a.Text, "+") || strings.HasPrefix(a.Text, ":") {
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
	case "lfs":
		if first == "prune" || first == "migrate" {
			lost = "throws away or rewrites large files"
		}
	case "worktree":
		if first == "remove" || first == "prune" {
			lost = "deletes a work tree"
		}
	case "fetch", "pull":
		if has(args, "--prune", "-p", "--force", "-f", "--prune-tags", "-P") {
			lost = "deletes or overwrites names of commits that others have deleted"
		}
	case "remote":
		if has(args, "--prune", "-p") && first == "update" {
			lost = "deletes names of commits"
		}
		if first == "prune" || first == "remove" || first == "rm" {
			lost = "removes a remote"
		}
	}
	return lost
}

// Shows finds sub-commands that only show when they are used so.
func Shows(verb string, args []word.Word) bool {
	first := ""
	if len(args) > 0 {
		first = args[0].Text
	}
	soft := own(verb, args)
	switch verb {
	case "branch":
		return onlyLists(args) || word.Has(soft, "-a", "-r", "--list", "-l", "--show-current", "--all", "--contains", "--merged", "--no-merged") && !word.Has(args, "-m", "-c", "-u", "--edit-description")
	case "tag":
		return onlyLists(args) || word.Has(soft, "-l", "--list", "--contains", "--points-at") && !word.Has(args, "-a", "-s", "-m")
	case "remote":
		verbose := !slices.ContainsFunc(args, func(a word.Word) bool { return !a.Is("-v", "--verbose") })
		return verbose || first == "show" || first == "get-url"
	case "stash":
		return first == "list" || first == "show"
	case "config":
		if len(args) > 0 && word.Has(args[:1], "--global", "--local", "--system", "--worktree") {
			args = args[1:]
		}
		if len(args) == 1 && !args[0].Option() && !args[0].Is("edit") || len(args) == 2 && args[0].Is("get") {
			return true
		}
		return word.Has(soft, "--list", "-l", "--get", "--get-all", "--get-regexp") && !word.Has(args, "--unset", "--add", "--replace-all", "-e", "--edit")
	case "reflog":
		return len(args) == 0 || first == "show" || strings.HasPrefix(first, "-")
	case "archive":
		return len(args) == 1 && args[0].Is("-l", "--list")
	case "bisect":
		return first == "log" || first == "visualize" || first == "view" || first == "terms"
	case "rerere":
		return first == "status" || first == "diff" || first == "remaining"
	case "apply":
		return word.Has(soft, "--check", "--stat", "--numstat", "--summary") && !word.Has(args, "--apply", "-R", "--index", "--cached", "-3", "--3way", "--build-fake-ancestor") && !word.Has(args, "--reject")
	case "interpret-trailers":
		return word.Has(soft, "--parse", "--only-input") && !word.Has(args, "--in-place")
	case "symbolic-ref":
		return len(args) > 0 && len(args) <= 2 && !args[len(args)-1].Option() && (len(args) == 1 || first == "--short" || first == "-q")
	case "lfs":
		return first == "ls-files" || first == "status" || first == "env" || first == "locks"
	case "sparse-checkout":
		return first == "list" && len(args) == 1
	case "worktree", "notes", "bundle":
		return first == "list" || first == "show" || first == "verify"
	case "submodule":
		return len(args) == 0 || first == "status"
	case "clean":
		return word.Has(soft, "-n", "--dry-run") && !word.Has(args, "-f", "--force")
	case "add", "rm", "mv":
		return dryRun(soft)
	}
	return false
}

// onlyLists tells branch or tag without names: how the list is to look, if anything.
func onlyLists(args []word.Word) bool {
	return !slices.ContainsFunc(args, func(a word.Word) bool {
		name, _, _ := strings.Cut(a.Text, "=")
		return !a.Known || !a.Is("-i", "--ignore-case", "--column", "--no-column", "--color", "--no-color", "-n", "-v", "-vv") && (name != "--sort" && name != "--format" || name == a.Text)
	})
}

// dryRun tells that an option asks to do nothing, and none takes that back.
func dryRun(args []word.Word) bool {
	dry := false
	for _, a := range args {
		switch {
		case a.Loose || strings.HasPrefix(a.Text, "--no"):
			return false
		case a.Is("-n", "--dry-run"):
			dry = true
		}
	}
	return dry
}

// settings are those of git that may hold credentials.
var settings = regexp.MustCompile(`(?i)(\.url|^url|extraheader|credential|token|password|proxy|smtp)`)

// Credentials tells that settings are shown which may hold credentials.
func Credentials(verb string, args []word.Word) bool {
	return verb == "config" && slices.ContainsFunc(args, func(a word.Word) bool {
		return a.Is("-l", "--list", "list") || !a.Known || settings.MatchString(a.Text)
	})
}
