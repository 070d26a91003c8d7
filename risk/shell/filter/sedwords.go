package filter

import (
	"regexp"
	"strings"

	"sallyport.dev/sallyport/risk/shell/word"
)

// A SedCall is what sed is told to do.
type SedCall struct {
	Scripts, Files []word.Word
	InPlace        bool   // it writes its files over
	Keeps          bool   // and keeps what they held
	Odd            string // the first word that is not known to be harmless, as a phrase
}

// keepsBackup tells the suffixes by which sed keeps what it edits.
var keepsBackup = regexp.MustCompile(`^[.~_-][\w.~-]+$|^~$`)

// ReadSed reads the words behind sed.
func ReadSed(args []word.Word) (c SedCall) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a.Loose:
			return SedCall{Odd: "a word that is made at run time"}
		case a.Text == "-e" || a.Text == "--expression":
			if i++; i < len(args) {
				c.Scripts = append(c.Scripts, args[i])
			}
		case strings.HasPrefix(a.Text, "--expression="):
			c.Scripts = append(c.Scripts, word.Word{Text: strings.TrimPrefix(a.Text, "--expression="), Known: a.Known})
		case strings.HasPrefix(a.Text, "-i") || strings.HasPrefix(a.Text, "--in-place"):
			c.InPlace = true
			c.Keeps = keepsBackup.MatchString(strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(a.Text, "-i"), "--in-place"), "="))
		case a.Text == "--help" || a.Text == "--version":
			return SedCall{}
		case a.Option():
			letters := a.Text[1:]
			if strings.Trim(letters, "nErsuzi") != "" && a.Text != "--quiet" && a.Text != "--silent" && a.Text != "--regexp-extended" {
				if strings.HasSuffix(letters, "e") && strings.Trim(letters, "nErsuze") == "" && i+1 < len(args) {
					i++
					c.Scripts = append(c.Scripts, args[i])
					continue
				}
				c.Odd = "option " + a.Text + ", which is not known to be harmless"
			}
			c.InPlace = c.InPlace || strings.Contains(letters, "i") && !strings.HasPrefix(letters, "-")
		default:
			c.Files = append(c.Files, a)
		}
	}
	if len(c.Scripts) == 0 && len(c.Files) > 0 {
		c.Scripts, c.Files = c.Files[:1], c.Files[1:]
	}
	return c
}
