package tier

import (
	_ "embed"

	"sallyport.dev/sallyport/tier/payload"
)

// figures is a backend of matplotlib.
//
//go:embed figures.py
var figures string

const (
	pythonDir  = "/home/.python"
	figureName = "sallyport_figures"
)

// AppendOutput writes that there is an output folder, and how figures get there.
func AppendOutput(b []byte) []byte {
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
// belongs to the last file, also where that is not kept. What is beyond the bounds of
// a result is not: who tells may be the program.
func (a *Artifacts) Note(k payload.Kind, data []byte) bool {
	named := len(data) > 8 && len(data) <= 8+payload.MaxPath
	if k == payload.Artifact {
		a.open = named && len(a.Files) < payload.MaxArtifacts
	}
	switch {
	case k == payload.Artifact && a.open:
		a.Files = append(a.Files, File{Path: string(data[8:])})
	case k == payload.LeftOut && named && len(a.LeftOut) < payload.MaxEntries:
		a.LeftOut = append(a.LeftOut, string(data[8:]))
	case k == payload.Data && a.open && a.size()+len(data) <= payload.MaxArtifactBytes:
		f := &a.Files[len(a.Files)-1]
		f.Content = append(f.Content, data...)
	default:
		return false
	}
	return true
}

func (a *Artifacts) size() (n int) {
	for _, f := range a.Files {
		n += len(f.Content)
	}
	return n
}
