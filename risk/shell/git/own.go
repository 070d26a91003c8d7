package git

import (
	"regexp"
	"slices"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// takers are the options of sub-commands that take the next word, whatever it looks like.
var takers = map[string]string{
	"clean":          "-e --exclude",
	"apply":          "-p -C --exclude --include --directory --whitespace --build-fake-ancestor",
	"am":             "-p -C --exclude --include --directory --whitespace --patch-format --quoted-cr --empty",
	"checkout-index": "--prefix --stage",
	"read-tree":      "--prefix --exclude-per-directory --index-output",
	"format-patch": `-o -v -S -G -O -l --output-directory --output --subject-prefix --suffix --start-number --from --to --cc --add-header --in-reply-to --signature
		--signature-file --base --reroll-count --filename-max-length --diff-filter --interdiff --range-diff --creation-factor`,
	"restore": "-s -U --source --conflict --pathspec-from-file --unified",
	"branch":  "-u --set-upstream-to --format --sort --points-at --contains --no-contains --merged --no-merged",
	"tag":     "-m -F -u --message --file --local-user --format --sort --cleanup --contains --no-contains --merged --no-merged --points-at --trailer",
	"config":  "-f --file --blob --type --default --comment --value",
	"add":     "--chmod --pathspec-from-file",
	"rm":      "--pathspec-from-file",

	"interpret-trailers": "--trailer --where --if-exists --if-missing",
}

// own is args without the values of options and without what stands behind --: those
// ask for nothing, though they may look like an option that lets a command pass.
func own(verb string, args []word.Word) []word.Word {
	takes := strings.Fields(takers[verb])
	var out []word.Word
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a.Is("--") {
			break
		}
		switch {
		case strings.HasPrefix(a.Text, "--"):
			if slices.ContainsFunc(takes, func(t string) bool { return len(a.Text) > 2 && strings.HasPrefix(t, a.Text) }) { // git takes what is short for one
				i++
			}
		case len(a.Text) > 1 && a.Text[0] == '-':
			for j := 1; j < len(a.Text); j++ {
				if slices.Contains(takes, "-"+a.Text[j:j+1]) {
					if j == len(a.Text)-1 {
						i++
					}
					a.Text = a.Text[:j+1]
				}
			}
		}
		out = append(out, a)
	}
	return out
}

// has finds options by which a sub-command loses something, also where they are short for
// a long one, as git takes them.
func has(args []word.Word, options ...string) bool {
	return word.Has(args, options...) || slices.ContainsFunc(args, func(a word.Word) bool {
		name, _, _ := strings.Cut(a.Text, "=")
		return len(name) > 2 && strings.HasPrefix(name, "--") && slices.ContainsFunc(options, func(o string) bool { return strings.HasPrefix(o, name) })
	})
}

// sub is the word that says what remote, notes, stash and their like are to do: the first
// that is no option.
func sub(args []word.Word) string {
	for i, a := range args {
		if !strings.HasPrefix(a.Text, "-") && (i == 0 || !args[i-1].Is("--ref")) {
			return a.Text
		}
	}
	return ""
}

// tame are settings by which git runs nothing, reads no other file and asks nobody
// else: how things look, and who is named in a commit.
var tame = regexp.MustCompile(`(?i)^(color\.[\w.-]+=\w+|column\.\w+=\w+|advice\.\w+=\w+|core\.(quotepath|abbrev)=\w+|log\.(date|decorate|abbrevcommit)=[\w-]+|` +
	`diff\.(renames|renamelimit|algorithm|context|noprefix|mnemonicprefix|colormoved)=[\w-]+|(core\.pager|pager\.\w+)=(cat|false)?|gc\.auto=0|` +
	`(user|author|committer)\.(name|email)=[\w.@+ -]*|(commit|tag)\.gpgsign=false|init\.defaultbranch=[\w/-]+)$`)

// Tame tells a setting, as git -c takes it, that makes no use of git more dangerous.
func Tame(setting word.Word) bool { return setting.Literal() && tame.MatchString(setting.Text) }
