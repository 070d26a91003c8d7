package risk_test

import "testing"

// Ways to lose rows in two steps, or with a WHERE that leaves none out.
func TestSQLEvasions(t *testing.T) {
	e := engine(t)
	for _, c := range []struct{ dialect, want, text string }{
		{"postgres", "irreversible", "CREATE FUNCTION lower(int) RETURNS int LANGUAGE sql AS 'DELETE FROM orders; SELECT 1'"},
		{"postgres", "irreversible", "CREATE FUNCTION lower(int) RETURNS int LANGUAGE sql BEGIN ATOMIC DELETE FROM orders; SELECT 1; END"},
		{"postgres", "irreversible", "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$begin delete from orders; end$$"},
		{"postgres", "critical", "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$begin execute x; end$$"},
		{"postgres", "high", "CREATE OR REPLACE FUNCTION f2(a int) RETURNS int LANGUAGE sql AS 'SELECT $1 + a'"},
		{"postgres", "critical", "CREATE OPERATOR + (LEFTARG=text, RIGHTARG=text, FUNCTION=evil)"},
		{"postgres", "critical", "CREATE CAST (text AS int) WITH FUNCTION evil(text)"},
		{"postgres", "critical", "CREATE AGGREGATE sum(text) (sfunc=evil, stype=text)"},
		{"postgres", "high", "CREATE AGGREGATE my_sum(numeric) (sfunc=numeric_add, stype=numeric)"},
		{"postgres", "critical", "CREATE TRIGGER t AFTER INSERT ON log EXECUTE FUNCTION act()"},
		{"postgres", "critical", "INSERT INTO orders SELECT * FROM orders ON CONFLICT (id) DO UPDATE SET total = 0"},
		{"postgres", "high", "INSERT INTO orders(id,total) VALUES (1,0) ON CONFLICT (id) DO UPDATE SET total = 0"},
		{"postgres", "irreversible", "UPDATE orders SET total=0 WHERE name SIMILAR TO '%'"},
		{"postgres", "high", "UPDATE orders SET total=0 WHERE name SIMILAR TO 'a%'"},
		{"postgres", "irreversible", "UPDATE orders SET total=0 WHERE starts_with(name, '')"},
		{"postgres", "irreversible", "UPDATE orders SET total=0 FROM customers c WHERE c.id=5"},
		{"postgres", "irreversible", "UPDATE orders SET total=0 WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id=5)"},
		{"postgres", "high", "UPDATE orders o SET total=0 FROM customers c WHERE o.customer=c.id AND c.id=5"},
		{"postgres", "high", "UPDATE orders o SET total=0 WHERE EXISTS (SELECT 1 FROM customers c WHERE c.id=o.customer AND c.country='de')"},
		{"postgres", "critical", "SELECT a FROM t ORDER BY a USING OPERATOR(public.<)"},
		{"postgres", "low", "SELECT a FROM t ORDER BY a USING <, b DESC NULLS LAST"},
		{"sqlite", "critical", "CREATE TRIGGER t AFTER INSERT ON log BEGIN UPDATE orders SET total=0; END"},
		{"sqlite", "critical", "CREATE TRIGGER t AFTER INSERT ON log BEGIN SELECT 1; UPDATE orders SET total=new.id WHERE 1=1; END"},
		{"sqlite", "critical", "CREATE TRIGGER t AFTER INSERT ON log BEGIN UPDATE orders SET total=0 WHERE new.id=new.id; END"},
		{"sqlite", "high", "CREATE TRIGGER t AFTER INSERT ON log BEGIN UPDATE orders SET total=0 WHERE id=NEW.id; END"},
		{"sqlite", "critical", "CREATE TRIGGER t AFTER INSERT ON log BEGIN REPLACE INTO orders SELECT id,0 FROM orders; END"},
		{"sqlite", "critical", "INSERT INTO orders SELECT * FROM orders WHERE true ON CONFLICT(id) DO UPDATE SET total=0"},
		{"sqlite", "irreversible", "WITH x AS (SELECT 1) REPLACE INTO orders SELECT 1"},
		{"sqlite", "irreversible", "UPDATE orders SET total=0 WHERE name GLOB '?*'"},
		{"sqlite", "irreversible", "UPDATE orders SET total=0 WHERE name GLOB '[^z]*'"},
		{"sqlite", "high", "UPDATE orders SET total=0 WHERE name GLOB 'ab*'"},
		{"sqlite", "irreversible", `UPDATE orders SET total=0 WHERE "x"='x'`},
		{"sqlite", "high", `UPDATE orders SET total=0 WHERE "id"=5`},
		{"sqlite", "irreversible", "UPDATE orders SET total=0 FROM customers WHERE customers.id=5"},
		{"sqlite", "high", "UPDATE orders AS o SET total=0 FROM customers c WHERE c.id=o.customer AND c.id=5"},
	} {
		if got := verdict(e.SQL(c.dialect, c.text)); got != c.want {
			t.Errorf("%s: %s: %s, want %s", c.dialect, c.text, got, c.want)
		}
	}
}
