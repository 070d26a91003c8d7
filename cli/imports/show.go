package imports

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sallyport.dev/sallyport/cli"
	"sallyport.dev/sallyport/redact/visible"
)

// show tells what each server is, in full, without any secret.
func (a *app) show(all []account) {
	line := func(name, text string) {
		fmt.Fprintf(a.Err, "  %-10s %s\n", name, strings.ReplaceAll(visible.String(text), "\n", `\n`))
	}
	for _, x := range all {
		title := x.Name
		if x.Was != "" {
			title += " (" + x.Was + ")"
		}
		fmt.Fprintln(a.Err, visible.String(title))
		if x.State != "planned" {
			line(x.State, x.Problem+x.Error)
			continue
		}
		c := x.Config
		if c.URL != "" {
			line("address", c.URL)
		} else {
			line("command", cli.CommandLine("", append([]string{c.Command}, c.Args...)))
			line("isolation", isolation(c.Isolation, c.Egress))
			if p := pinned(c.Command, c.Args); p != "" {
				line("package", p)
			}
		}
		values := func(what string, m map[string]string) {
			for _, name := range slices.Sorted(maps.Keys(m)) {
				value := m[name]
				if strings.Contains(value, "${secret:") {
					value += "   (kept in the secret store)"
					for _, stored := range x.Asks {
						if strings.Contains(value, "${secret:"+stored+"}") {
							value = m[name] + "   (as it is stored here)"
						}
					}
				}
				line(what, name+"="+value)
			}
		}
		values("env", c.Env)
		values("header", c.Headers)
		for _, n := range x.Notes {
			line("note", n)
		}
	}
}

func isolation(how string, reach []string) string {
	switch how {
	case "uid":
		return "uid: a user of its own on this host, with the network of this host"
	case "none":
		return "none: as the gateway's own user"
	}
	if len(reach) == 0 {
		return "gvisor: a sandbox that reaches nothing and sees no folder of this host"
	}
	return "gvisor: a sandbox that reaches " + strings.Join(reach, ", ") + " and sees no folder of this host"
}

// pinned says what fixes the package that a command names.
func pinned(command string, args []string) string {
	if command != "npx" {
		return ""
	}
	for _, spec := range args {
		if strings.HasPrefix(spec, "-") {
			continue
		}
		i := strings.LastIndexByte(spec, '@')
		if i > 0 && strings.Trim(spec[i+1:], "0123456789.") == "" && strings.Count(spec[i+1:], ".") == 2 {
			return spec + ": installed once; its integrity, and that of all it needs, is written down and holds at each start"
		}
		return spec + ": no exact version, so the newest one that fits is installed once; its integrity is written down and holds at each start"
	}
	return ""
}
