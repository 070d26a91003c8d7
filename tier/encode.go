package tier

import (
	"fmt"
	"path"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/tier/payload"
)

// AppendBounds writes the limits that process 1 sets.
func AppendBounds(b []byte, l sallyport.Limits) []byte {
	b = payload.Append(b, payload.Disk, fmt.Appendf(nil, "size=%d,nr_inodes=%d", l.Disk, max(256, l.Disk/4096)))
	return payload.Append(b, payload.Procs, payload.AppendUint32(nil, uint32(l.Processes)))
}

// AppendProgram writes files, argv and all of the environment.
func (r Request) AppendProgram(b []byte, env []string) []byte {
	b = r.AppendFiles(b)
	for _, a := range r.Argv {
		b = payload.Append(b, payload.Arg, []byte(a))
	}
	for _, e := range env {
		b = payload.Append(b, payload.Env, []byte(e))
	}
	return b
}

// AppendFiles writes the files of a request, and whether it talks.
func (r Request) AppendFiles(b []byte) []byte {
	if r.Talk != nil {
		b = payload.Append(b, payload.Talk, nil)
	}
	made := map[string]bool{".": true}
	for _, f := range r.Files {
		b = appendFolders(b, path.Dir(f.Path), made)
		b = payload.Append(b, payload.File, []byte(f.Path))
		for c := f.Content; len(c) > 0; {
			n := min(len(c), payload.MaxRecord)
			b = payload.Append(b, payload.Data, c[:n])
			c = c[n:]
		}
	}
	return b
}

func appendFolders(b []byte, dir string, made map[string]bool) []byte {
	if made[dir] {
		return b
	}
	b = appendFolders(b, path.Dir(dir), made)
	made[dir] = true
	return payload.Append(b, payload.Folder, []byte(dir))
}
