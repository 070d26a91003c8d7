package mysql

import (
	"testing"

	"sallyport.dev/sallyport"
)

// Texts in which the readings of the modes differ, and how many there are.
func TestReadings(t *testing.T) {
	for text, want := range map[string]int{
		"SELECT 1":                        1,
		"SELECT 'a'":                      1,
		"SELECT 1 /* x */":                1,
		"SELECT 1 /*! + 1 */":             2,
		"SELECT 'a\\n'":                   2,
		`SELECT "a"`:                      2,
		`SELECT "a\\b"`:                   3,
		`SELECT "a", 'b\\n' /*! , "c" */`: 8,
	} {
		first := lex(text, mode{inline: true, backslash: true})
		seen := map[string]bool{first.canonical(): true}
		for _, o := range otherModes(first) {
			seen[lex(text, o.mode).canonical()] = true
		}
		if len(seen) != want {
			t.Errorf("%q is read in %d ways, want %d: %v", text, len(seen), want, seen)
		}
	}
}

// What is written so that it has one meaning keeps the meaning.
func TestCanonical(t *testing.T) {
	for text, want := range map[string]string{
		"SELECT/**/1":                  "SELECT 1",
		"SELECT 5--2":                  "SELECT 5- -2",
		"SELECT 1 -- x\n, 2":           "SELECT 1 , 2",
		`SELECT "it's", 'a''b', 'c\\'`: `SELECT 'it''s', 'a''b', 'c\\'`,
		"SELECT @'a b', @x":            "SELECT @`a b`, @x",
		"SELECT /*!50000 1 */":         "SELECT 1",
		"SELECT 4 //**/ 2":             "SELECT 4 / 2",
		"SELECT größe":                 "SELECT `größe`",
	} {
		r := lex(text, mode{inline: true, backslash: true})
		if got := r.statements()[0].canonical(); got != want || r.broken != "" {
			t.Errorf("%q becomes %q (%s), want %q", text, got, r.broken, want)
		}
	}
}

// A comment that has no end ends the reading, and what came before it counts.
func TestCommentsWithoutEnd(t *testing.T) {
	j := New()
	for _, text := range []string{"SELECT 1 /* x", "SELECT 1 /*! /* x", "SELECT 1 /*! 2 /*! 3", "SELECT 1 /*M!", "/*", "/*!", "/*! /*"} {
		if r, parsed := j.Judge(text); r.Level != sallyport.Critical || parsed {
			t.Errorf("%q is %s, parsed %v: want critical", text, r.Level, parsed)
		}
	}
	if r, _ := j.Judge("SELECT 1; DROP TABLE a; /*! x /* y"); !r.Irreversible {
		t.Errorf("what stands before a comment without end is forgotten: %v", r)
	}
}

// A harmless statement before never makes a destructive one pass, and nothing
// breaks the judge.
func FuzzJudge(f *testing.F) {
	for _, s := range []string{
		"SELECT 1", "SELECT 1 /*! ; DROP TABLE x */", "SELECT `a` FROM b # c", "SELECT '\\'; DROP TABLE x; -- '", `SELECT "a" -- x`,
		"SELECT 1 /*!50000 INTO OUTFILE 'x' */", "SELECT 1 /*! 2 /* 3", "SELECT 1 /*! /*! 2", "UPDATE t SET a = 1 WHERE b = 1 || 1", "PREPARE s FROM 'SELECT 1'", "SELECT @'a', @@b",
	} {
		f.Add(s)
	}
	j := New()
	f.Fuzz(func(t *testing.T, text string) {
		r, _ := j.Judge(text)
		if len(r.Reasons) == 0 || r.Irreversible && r.Level != sallyport.Critical {
			t.Fatalf("%q: %+v", text, r)
		}
		if r.Level == sallyport.Critical {
			return
		}
		if r, _ := j.Judge(text + "\n;DROP TABLE orders"); r.Level != sallyport.Critical {
			t.Fatalf("%q, then DROP TABLE: %s", text, r.Level)
		}
	})
}
