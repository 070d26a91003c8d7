package storetest

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/audit"
)

// testExport: what was exported is checked without the database, and whatever is
// changed in the file is noticed, and where.
func testExport(t *testing.T, f *fixture) {
	add := func(tenant, call string) {
		must(t, f.AppendEntries(t.Context(), sallyport.Entry{Tenant: tenant, Kind: sallyport.EntryOutcome, CallID: call, Payload: json.RawMessage(`{"n":1}`)}))
	}
	add("t", "a")
	add("u", "secret")
	add("t", "b")
	add("t", "c")
	logs, err := f.Logs(t.Context())
	must(t, err)
	must(t, f.EraseAudit(t.Context(), logs[0].Writer, 3, "ada", "a person asked"))
	var out bytes.Buffer
	must(t, audit.Export(t.Context(), f.Store, &out, "t"))
	if strings.Contains(out.String(), "secret") {
		t.Error("another tenant's entry is in the export")
	}
	o := audit.Options{PublicKeys: f.place.PublicKeys(), Head: f.place.Heads(t)}
	rep := checkExport(t, out.String(), o)
	if !rep.OK() || len(rep.Logs) != 1 || rep.Logs[0].Entries != 5 || rep.Logs[0].KeptHeads == 0 || !slices.Equal(rep.Logs[0].Erased, []int64{3}) ||
		len(rep.Notes) != 1 || !strings.Contains(rep.Notes[0], "1 of its 5 entries are told by their hash alone") {
		t.Fatalf("whole: %+v", rep)
	}
	exportChanged(t, out.String(), o)
	other, err := audit.NewKey()
	must(t, err)
	if rep := checkExport(t, out.String(), audit.Options{PublicKeys: []string{other.Public()}}); rep.OK() || !strings.Contains(rep.Problems[0].What, "not signed by a given key") {
		t.Errorf("another's key: %+v", rep)
	}
	f.pass(time.Second)
	add("t", "d")
	if rep := checkExport(t, out.String(), audit.Options{PublicKeys: o.PublicKeys, Head: f.place.Heads(t)}); !rep.OK() || !slices.ContainsFunc(rep.Notes, func(n string) bool { return strings.Contains(n, "has grown since") }) {
		t.Errorf("the log goes on: %+v", rep)
	}
}

func checkExport(t *testing.T, text string, o audit.Options) audit.Report {
	t.Helper()
	rep, err := audit.VerifyExport(strings.NewReader(text), o)
	must(t, err)
	return rep
}

// exportChanged: each change of an export is noticed, in words of its own.
func exportChanged(t *testing.T, whole string, o audit.Options) {
	t.Helper()
	lines := strings.SplitAfter(strings.TrimSuffix(whole, "\n"), "\n") // the head, and entries 0 to 4
	without := func(i int) string { return strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "") }
	swapped := slices.Clone(lines)
	swapped[1], swapped[2] = swapped[2], swapped[1]
	for name, c := range map[string]struct{ text, want string }{
		"a field":                  {strings.Replace(whole, `"call_id":"b"`, `"call_id":"x"`, 1), "line 4: the entry is not in the log"},
		"a payload":                {strings.Replace(whole, `{\"n\":1}`, `{\"n\":2}`, 1), "not what the entry committed to"},
		"a payload taken out":      {strings.Replace(whole, `"payload":"{\"n\":1}",`, ``, 1), "not what the entry committed to"},
		"an entry taken out":       {without(3), "not in the file"},
		"the first taken out":      {without(1), "not in the file"},
		"the last taken out":       {without(5), "ends at 4 entries, its signed head says 5"},
		"another's taken out":      {without(2), "not in the file"},
		"an entry twice":           {lines[0] + lines[1] + lines[1] + strings.Join(lines[2:], ""), "entry 0 stands twice"},
		"two change places":        {strings.Join(swapped, ""), "not in the file"},
		"no head":                  {without(0), "no head of log"},
		"a line cut off":           {whole[:len(whole)-40], "was cut off"},
		"another's hash":           {altered(lines), "do not lead to the signed head"},
		"a field that is not ours": {strings.Replace(whole, `"call_id":"b"`, `"call_id":"b","extra":1`, 1), "no line of an export"},
		"the log twice":            {whole + whole, "stands twice"},
		"a payload beside a hash":  {strings.Replace(whole, `"leaf":`, `"payload":"{\"n\":2}","leaf":`, 1), "not as an export has it"},
		"a payload beside a head":  {strings.Replace(whole, `"seq":0}`, `"seq":0,"payload":"{\"n\":2}"}`, 1), "not as an export has it"},
		"a payload twice":          {strings.Replace(whole, `"payload":`, `"payload":"{\"n\":2}","payload":`, 1), "not as an export has it"},
		"a name in capitals":       {strings.Replace(whole, `"payload":`, `"payload":"{\"n\":2}","Payload":`, 1), "not as an export has it"},
		"something after a line":   {strings.Replace(whole, "}\n", "}]\n", 1), "not as an export has it"},
		"nothing":                  {"", "no signed head"},
	} {
		if rep := checkExport(t, c.text, o); !slices.ContainsFunc(rep.Problems, func(p audit.Problem) bool { return strings.Contains(p.What, c.want) }) {
			t.Errorf("%s: %+v; want %q", name, rep.Problems, c.want)
		}
	}
}

// altered is the export with another hash of another tenant's entry.
func altered(lines []string) string {
	lines = slices.Clone(lines)
	b := []byte(lines[2])
	if at := strings.Index(lines[2], `"leaf":"`) + len(`"leaf":"`); b[at] == 'A' {
		b[at] = 'B'
	} else {
		b[at] = 'A'
	}
	lines[2] = string(b)
	return strings.Join(lines, "")
}
