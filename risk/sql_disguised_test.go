package risk_test

import (
	"slices"
	"strings"
	"testing"

	"sallyport.dev/sallyport"
	"sallyport.dev/sallyport/risk"
)

var dialects = []string{"postgres", "sqlite", "mysql"}

// A textCase is one text and the verdicts of the three dialects, in their
// order. One verdict is that of all of them; "write" is high or worse.
type textCase struct{ want, text string }

func checkTexts(t *testing.T, e *risk.Engine, cases []textCase) {
	t.Helper()
	for _, c := range cases {
		wants := strings.Fields(c.want)
		if len(wants) == 1 {
			wants = []string{wants[0], wants[0], wants[0]}
		}
		for i, d := range dialects {
			r := e.SQL(d, c.text)
			got := verdict(r)
			if got == wants[i] || wants[i] == "write" && r.Level >= sallyport.High || wants[i] == "-" {
				continue
			}
			t.Errorf("%s: %q is %s, want %s: %q", d, c.text, got, wants[i], r.Reasons)
		}
	}
}

// A comment is what the dialect at hand takes for one; one that is executed is
// code, and what could be read two ways is a write.
func TestTO29CommentsAsCode(t *testing.T) {
	checkTexts(t, engine(t), []textCase{
		{"low low irreversible", "SELECT 1 /*! INTO OUTFILE '/tmp/x' */"},
		{"low low irreversible", "SELECT 1 /*!50000 INTO OUTFILE '/tmp/x' */"},
		{"low low irreversible", "SELECT 1 /*!99999 INTO OUTFILE '/tmp/x' */"},
		{"low low irreversible", "SELECT 1 /*!080000 INTO OUTFILE '/tmp/x' */"},
		{"low low irreversible", "SELECT 1 /*M!100100 INTO OUTFILE '/tmp/x' */"},
		{"low low irreversible", "SELECT 1 /*!; DROP TABLE orders */"},
		{"low low irreversible", "/*! DROP TABLE orders */"},
		{"low low irreversible", "SELECT 1;/*!50110DROP TABLE orders*/"},
		{"low low write", "SELECT 1 /*!500001x*/"},
		{"low low write", "SELECT 1 /*!1234 + 1*/"},
		{"low low low", "SELECT /*!40001 SQL_NO_CACHE */ id FROM orders"},
		{"irreversible irreversible irreversible", "DELETE /* x */ FROM /**/ orders"},
		{"low critical write", "SELECT 1 /*! /* */ , 2 */"},
		{"write irreversible irreversible", "SELECT 1 # DROP\n; DROP TABLE orders"},
		{"critical irreversible low", "SELECT 1 # DROP TABLE orders"},
		{"low low low", "SELECT 1 -- DROP TABLE orders"},
		{"low low write", "SELECT 1 --DROP TABLE orders"},
		{"low low low", "SELECT 5--2"},
		{"irreversible irreversible irreversible", "SELECT 1 --x\n; DROP TABLE orders"},
		{"low irreversible irreversible", "SELECT 1 /* /* */ ; DROP TABLE orders -- */"},
		{"irreversible", "SELECT 1 /* /* */ */ ; DROP TABLE orders"},
		{"irreversible irreversible irreversible", "DROP/**/TABLE/**/orders"},
		{"critical critical critical", "DR/**/OP TABLE orders"},
		{"low low low", "SELECT /*+ SeqScan(orders) */ id FROM orders"},
		{"low low high", "SELECT /*+ SET_VAR(sql_safe_updates=0) */ id FROM orders"},
		{"low low low", "SELECT /*+ BKA(orders) */ id FROM orders"},
		{"critical low critical", "SELECT 1 /* no end"},
		{"critical low irreversible", "SELECT 1 /*! INTO OUTFILE '/tmp/x'"},
		{"low low low", "SELECT '/* ' AS a, ' */ -- # /*! DROP */'"},
	})
}

// A statement that begins as a query is what it does.
func TestTO30WritesInReads(t *testing.T) {
	e := engine(t)
	checkTexts(t, e, []textCase{
		{"irreversible irreversible irreversible", "WITH x AS (SELECT 1) DELETE FROM orders"},
		{"irreversible", "WITH x AS (DELETE FROM orders RETURNING *) SELECT * FROM x"},
		{"high critical critical", "WITH x AS (INSERT INTO orders (id) VALUES (1) RETURNING *) SELECT * FROM x"},
		{"irreversible critical critical", "WITH x AS (UPDATE orders SET total = 0 RETURNING *) SELECT * FROM x"},
		{"high critical critical", "SELECT * INTO copy FROM orders"},
		{"high critical high", "SELECT * FROM orders FOR UPDATE"},
		{"high critical high", "SELECT * FROM orders FOR SHARE"},
		{"critical critical high", "SELECT * FROM orders LOCK IN SHARE MODE"},
		{"high high high", "INSERT INTO archive SELECT * FROM orders"},
		{"critical critical critical", "MERGE INTO orders o USING lines l ON o.id = l.order_id WHEN MATCHED THEN UPDATE SET total = 0"},
		{"write irreversible irreversible", "REPLACE INTO orders (id) VALUES (1)"},
		{"irreversible critical critical", "COPY orders TO PROGRAM 'cat'"},
		{"irreversible critical critical", "COPY orders FROM PROGRAM 'cat'"},
		{"critical critical critical", "LOAD DATA INFILE '/tmp/x' INTO TABLE orders"},
		{"critical critical irreversible", "LOAD DATA INFILE '/tmp/x' REPLACE INTO TABLE orders"},
		{"critical critical irreversible", "SELECT * FROM orders INTO OUTFILE '/tmp/x'"},
		{"critical critical irreversible", "SELECT 1 INTO DUMPFILE '/tmp/x'"},
		{"write high critical", "PRAGMA user_version = 5"},
		{"write critical critical", "PRAGMA writable_schema = 1"},
		{"write critical critical", "ATTACH '/tmp/x' AS y"},
		{"write critical critical", "VACUUM INTO '/tmp/x'"},
		{"critical critical high", "SELECT id INTO @x FROM orders LIMIT 1"},
		{"irreversible - -", "EXPLAIN ANALYZE DELETE FROM orders"},
		{"low low low", "EXPLAIN DELETE FROM orders"},
		{"low low low", "WITH x AS (SELECT id FROM orders) SELECT count(*) FROM x"},
	})
	for _, c := range []struct{ dialect, text, table, effect string }{
		{"postgres", "WITH x AS (DELETE FROM shop.orders WHERE id = 1 RETURNING *) SELECT * FROM x", "shop.orders", sallyport.EffectDelete},
		{"sqlite", "WITH x AS (SELECT 1) DELETE FROM main.orders", "main.orders", sallyport.EffectDelete},
		{"mysql", "WITH x AS (SELECT 1) DELETE FROM shop.orders", "shop.orders", sallyport.EffectDelete},
		{"postgres", "SELECT 1; DROP TABLE a.b", "a.b", sallyport.EffectDestroy},
		{"sqlite", "SELECT 1; DROP TABLE orders", "orders", sallyport.EffectDestroy},
		{"mysql", "SELECT 1; DROP TABLE a.b", "a.b", sallyport.EffectDestroy},
		{"postgres", "COPY orders TO PROGRAM 'cat'", "", sallyport.EffectExecute},
		{"postgres", "GRANT ALL ON orders TO bob", "", sallyport.EffectPrivileges},
		{"mysql", "GRANT ALL ON shop.orders TO bob", "", sallyport.EffectPrivileges},
		{"mysql", "INSERT INTO shop.orders (id) VALUES (1)", "shop.orders", sallyport.EffectWrite},
	} {
		r := e.SQL(c.dialect, c.text)
		if !slices.Contains(r.Effects, c.effect) {
			t.Errorf("%s: %q has effects %q, want %s", c.dialect, c.text, r.Effects, c.effect)
		}
		if c.table != "" && (!slices.Contains(r.Objects, c.table) || !slices.ContainsFunc(r.Parts, func(p sallyport.Part) bool { return p.Label == "table" && p.Text == c.table })) {
			t.Errorf("%s: %q names %q and shows %v, want %s", c.dialect, c.text, r.Objects, r.Parts, c.table)
		}
		if slices.Contains(r.Objects, "x") {
			t.Errorf("%s: %q: the name of a WITH is no object: %q", c.dialect, c.text, r.Objects)
		}
		if !slices.ContainsFunc(r.Parts, func(p sallyport.Part) bool {
			return p.Label == "operation" && strings.Contains(c.text, p.Text)
		}) {
			t.Errorf("%s: %q shows no operation as it is written: %v", c.dialect, c.text, r.Parts)
		}
	}
}

// Every statement counts, and the worst of them is the verdict; what is quoted
// is not split.
func TestTO31SeveralStatements(t *testing.T) {
	e := engine(t)
	checkTexts(t, e, []textCase{
		{"irreversible", "SELECT 1; DROP TABLE orders"},
		{"irreversible", "SELECT 1;;;\n\t; DROP TABLE orders;;"},
		{"irreversible", "BEGIN; DELETE FROM orders; COMMIT"},
		{"irreversible", "DROP TABLE orders; SELECT 1"},
		{"irreversible", ";DROP TABLE orders"},
		{"critical irreversible irreversible", "SELECT 1\nDROP TABLE orders"}, // T-SQL: two statements
		{"write", "SELECT 1 DELETE FROM orders"},
		{"critical irreversible irreversible", "SELECT 1\nGO\nDROP TABLE orders\nGO"},
		{"write", "SELECT 1\nGO"},
		{"critical irreversible irreversible", "DELIMITER //\nDROP TABLE orders//"},
		{"write", "WAITFOR DELAY '00:00:05'"},
		{"write", "SELECT 1; WAITFOR DELAY '00:00:05'"},
		{"write", "USE other_db"},
		{"write", "USE other_db; SELECT 1"},
		{"write", "\\c other_db"},
		{"write", "EXEC sp_executesql N'DROP TABLE orders'"},
		{"write", "sp_executesql N'DROP TABLE orders'"},
		{"write", "DECLARE @x int = 1"},
		{"write", "IF 1=1 DELETE FROM orders"},
		{"write", "BEGIN TRY DELETE FROM orders END TRY"},
		{"write", "SELECT TOP 5 * INTO x FROM orders"},
		{"write", "xp_cmdshell 'dir'"},
		{"write", "SET IDENTITY_INSERT orders ON"},
		{"high critical critical", "SELECT pg_sleep(60)"},
		{"critical critical high", "SELECT SLEEP(60)"},
		{"critical critical high", "SELECT BENCHMARK(100000000, MD5('a'))"},
		{"high critical critical", "SELECT pg_sleep_for('1 hour')"},
		{"write", "BEGIN; SELECT 1"},
		{"low", "SELECT ';', 'a;b', '; DROP TABLE orders;'"},
		{"low", "SELECT 1 /* ; DROP TABLE orders; */"},
		{"low", "SELECT 1 -- ; DROP TABLE orders"},
		{"low", "SELECT 1;"},
		{"low", "SELECT ';' AS \"a;b\""},
		{"low write write", "SELECT $$;DROP TABLE orders;$$, $x$;$$;$x$"},
		{"low", "BEGIN; SELECT 1; COMMIT"},
	})
	for _, d := range dialects {
		r := e.SQL(d, "SELECT 1; SELECT ';'; INSERT INTO orders (id) VALUES (1)")
		if verdict(r) != "high" || !strings.Contains(strings.Join(r.Reasons, " "), "holds 3 statements") {
			t.Errorf("%s: %s %q: want high, and that there are three", d, verdict(r), r.Reasons)
		}
		if r = e.SQL(d, "SELECT 1; -- only one\n;"); strings.Contains(strings.Join(r.Reasons, " "), "statements") {
			t.Errorf("%s: one statement is counted as more: %q", d, r.Reasons)
		}
	}
}

// A function that is not known to compute only is no read, wherever it stands.
func TestTO32FunctionsThatAct(t *testing.T) {
	e := engine(t)
	checkTexts(t, e, []textCase{
		{"irreversible critical irreversible", "SELECT purge_orders()"},
		{"critical", "SELECT archive_it(1)"},
		{"critical critical critical", "SELECT * FROM archive_it(1)"},
		{"critical", "SELECT id FROM orders WHERE archive_it(id) = 1"},
		{"critical", "SELECT id FROM orders ORDER BY archive_it(id)"},
		{"critical", "SELECT count(*) FROM orders GROUP BY archive_it(id)"},
		{"critical", "SELECT CASE WHEN archive_it(1) = 1 THEN 1 ELSE 2 END"},
		{"critical", "SELECT (SELECT archive_it(id) FROM orders LIMIT 1)"},
		{"critical", "SELECT lower(archive_it('x'))"},
		{"critical", "SELECT shop.lower('x')"},
		{"critical critical write", "SELECT 1 WHERE EXISTS (SELECT archive_it(1))"},
		{"high critical high", "SELECT nextval('s')"},
		{"high critical high", "SELECT setval('s', 1)"},
		{"high critical critical", "SELECT pg_terminate_backend(1)"},
		{"critical", "SELECT lo_import('/etc/passwd')"},
		{"irreversible critical critical", "SELECT lo_export(1, '/tmp/x')"},
		{"critical", "SELECT dblink('host=x', 'DROP TABLE orders')"},
		{"critical critical critical", "SELECT pg_read_file('/etc/passwd')"},
		{"critical critical critical", "SELECT load_file('/etc/passwd')"},
		{"critical", "SELECT load_extension('/tmp/x.so')"},
		{"critical", "SELECT writefile('/tmp/x', 'y')"},
		{"critical", "SELECT sys_exec('id')"},
		{"critical", "CALL p()"},
		{"critical", "EXEC p"},
		{"critical critical critical", "DO $$ BEGIN PERFORM 1; END $$"},
		{"irreversible write write", "DO $$ BEGIN DELETE FROM orders; END $$"},
		{"write", "CREATE EVENT e ON SCHEDULE EVERY 1 HOUR DO DELETE FROM orders"},
		{"write", "CREATE TRIGGER t AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION f()"},
		{"high critical critical", "SELECT pg_advisory_lock(1)"},
		{"critical critical high", "SELECT GET_LOCK('x', 1)"},
		{"critical", "SELECT 1 FROM orders WHERE id = ANY (archive_it())"},
		{"low", "SELECT lower('X'), abs(-1), coalesce(NULL, 1), round(1.5)"},
	})
}

// What two readers could read in two ways is a write.
func TestTO33Unicode(t *testing.T) {
	var cases []textCase
	for _, end := range []string{"\u2028", "\u2029", "\u0085", "\v", "\f"} {
		cases = append(cases, textCase{"write", "SELECT 1 -- x" + end + "DROP TABLE orders"})
	}
	cases = append(cases, []textCase{
		{"write", "SELECT 1 -- x\rDROP TABLE orders"},
		{"irreversible write write", "SELECT 1 -- x\r; DROP TABLE orders"},
		{"low", "SELECT 1 -- x\r\n"},
		{"write", "SELECT 1；DROP TABLE orders"},
		{"write", "SELECT 1;DROP TABLE orders"},
		{"write", "ＤＲＯＰ TABLE orders"},
		{"write", "DRОP TABLE orders"}, // a Cyrillic О
		{"write", "SELECT 1\x00; DROP TABLE orders"},
		{"write", "SELECT 1 \xc0\xbb DROP TABLE orders"},
		{"write", "SELECT '\xbf\\'; DROP TABLE orders; -- '"},
		{"write", "\ufeffDROP TABLE orders"},
		{"write", "SELECT\u200b1"},
		{"low", `SELECT U&"\0069d" FROM orders`},
		{"irreversible write write", `DROP TABLE U&"ord\0065rs"`},
		{"high write write", `SELECT U&"pg!005fsleep" UESCAPE '!' (1)`},
		{"high write write", `SELECT U&"pg\005fsleep"(1)`},
		{"irreversible write irreversible", `SELECT '\'; DROP TABLE orders; --'`},
		{"write low write", `SELECT 'a\'`},
		{"low write low", `SELECT E'it\'s'`},
		{"write", "SET client_encoding = 'GBK'"},
		{"write", "SET NAMES gbk"},
		{"write", "SET standard_conforming_strings = off"},
		{"write", "SET sql_mode = 'NO_BACKSLASH_ESCAPES'"},
		{"low", "SELECT 'ünïcödé；DROP', '日本語'"},
		{"low critical low", "SELECT N'x'"},
		{"low", "SELECT größe FROM bücher"},
	}...)
	checkTexts(t, engine(t), cases)
}
