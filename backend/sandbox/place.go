package sandbox

import (
	_ "embed"
	"regexp"
	"slices"

	"sallyport.dev/sallyport"
)

// module finds code that Node can only load as an ES module.
var module = regexp.MustCompile(`(?m)^[ \t]*(?:import[ \t]+[\w{*"']|export[ \t]+[\w{*])`)

// light makes Node run a program as an isolate would: with its input as a word,
// and what its function returns as output.
//
//go:embed light.mjs
var light []byte

// lightFile is the launcher's name, and lightMain that of the program beside it.
const (
	lightFile = "light.mjs"
	lightMain = "main.mjs"
)

// place puts a program where its tier runs it: into the working folder beside the
// caller's files, or into the runtime that the tier is.
func (c *Command) place(job sallyport.Job, lang language, source string) error {
	code := job.Tool.Code
	switch {
	case c.Tier == sallyport.TierIsolate:
		c.Module, c.Argv = &Module{Language: code.Language, Code: []byte(source)}, []string{lang.file}
		return nil
	case code.Language == "javascript" && code.Source != "" && job.Tool.Manifest.Trust == "light":
		c.Files[lightFile], c.Files[lightMain] = light, []byte(source)
		c.Argv = append(slices.Clone(lang.argv), lightFile)
		return nil
	case code.Language == "javascript" && (module.MatchString(source) || len(sallyport.ScriptTools(job.Tool, job.Args)) > 0):
		lang.file = "main.mjs"
	}
	if _, taken := c.Files[lang.file]; taken {
		return refuse(sallyport.Invalid, "give the file another name", "files: %q is the name under which the code itself is stored", lang.file)
	}
	c.Files[lang.file] = []byte(source)
	c.Argv = append(slices.Clone(lang.argv), lang.file)
	return nil
}
