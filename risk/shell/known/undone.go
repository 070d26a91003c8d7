package known

import "sallyport.dev/sallyport/risk/shell/word"

// packs is what gzip and its likes do.
const packs = "packs or unpacks files"

// Unpacks tells gzip and its likes that are told to test or to list, and then something
// else: the last of these counts.
func (p Program) Unpacks(args []word.Word) bool {
	return p.Does == packs && word.Has(args, "-z", "-d", "--compress", "--decompress", "--uncompress") && !word.Has(args, "-c", "--stdout", "--to-stdout")
}

var without = word.Set(`none off no n o of non`)

// BacksNothingUp tells an option by which cp, mv and install keep no copy after all.
func BacksNothingUp(g word.Given) bool { return g.Name == "--backup" && without[g.Value.Text] }
