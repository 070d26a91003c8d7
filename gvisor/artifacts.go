package gvisor

import (
	_ "embed"

	"sallyport.dev/sallyport/gvisor/payload"
)

// figures is a backend of matplotlib.
//
//go:embed figures.py
var figures string

const (
	pythonDir  = "/home/.python"
	figureName = "sallyport_figures"
)

// appendOutput writes that there is an output folder, and how figures get there.
func appendOutput(b []byte) []byte {
	b = payload.Append(b, payload.Output, nil)
	b = payload.Append(b, payload.Folder, []byte(pythonDir))
	b = payload.Append(b, payload.File, []byte(pythonDir+"/"+figureName+".py"))
	return payload.Append(b, payload.Data, []byte(figures))
}

// outputEnv tells programs of the folder, and matplotlib of its backend.
func outputEnv() []string {
	return []string{"SALLYPORT_OUTPUT=" + payload.OutputDir, "MPLBACKEND=module://" + figureName, "PYTHONPATH=" + pythonDir}
}

// Note takes one record about the folder, and says whether it was one. Data
// belongs to the last file.
func (a *Artifacts) Note(k payload.Kind, data []byte) bool {
	switch {
	case k == payload.Artifact && len(data) > 8:
		a.Files = append(a.Files, File{Path: string(data[8:])})
	case k == payload.LeftOut && len(data) > 8:
		a.LeftOut = append(a.LeftOut, string(data[8:]))
	case k == payload.Data && len(a.Files) > 0:
		f := &a.Files[len(a.Files)-1]
		f.Content = append(f.Content, data...)
	default:
		return false
	}
	return true
}
