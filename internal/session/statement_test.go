package session

import "testing"

func TestKeeps(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][2]bool{ // for a pool without a hook, and for one with a hook
		"LISTEN orders":                                     {true, true},
		"SELECT 1; listen orders":                           {true, true},
		"-- why\n  PREPARE mine AS SELECT 1":                {true, true},
		"/* why */ DECLARE c CURSOR WITH HOLD FOR SELECT 1": {true, true},
		"LOAD 'auto_explain'":                               {true, true},
		"SET search_path = a":                               {false, true},
		"set role clerk":                                    {false, true},
		"RESET ALL":                                         {false, true},
		"DISCARD TEMP":                                      {false, true},
		"SET LOCAL search_path = a":                         {false, false},
		"SET CONSTRAINTS ALL IMMEDIATE":                     {false, false},
		"SET TRANSACTION READ ONLY":                         {false, false},
		"SELECT set_config('a.b', $1, false)":               {false, true},
		"SELECT set_config('a.b', $1, $2)":                  {false, true},
		"SELECT set_config('a.b', f($1), true)":             {false, false},
		"SELECT set_config('a.b', $1, TRUE )":               {false, false},
		`SELECT E'a''\''; SET ROLE clerk`:                   {false, true},
		"SELECT E'a'\n'\\''; SET ROLE clerk":                {false, true},
		`SELECT E'a''\'; SET ROLE clerk'`:                   {false, false},
		`SELECT set_config('a.b', date'\', true)`:           {false, false},
		`SELECT set_config('a.b', E'\', true)', false)`:     {false, true},
		"UPDATE orders SET load = 1":                        {false, false},
		"INSERT INTO load VALUES ('listen to')":             {false, false},
		"SELECT reset FROM listen":                          {false, false},
	} {
		for i, hooked := range []bool{false, true} {
			if got := (&Pool{hooked: hooked}).Keeps(See(sql)); got != want[i] {
				t.Errorf("Keeps(See(%q)), hooked %v: %v", sql, hooked, got)
			}
		}
	}
}

func TestSeeFindsChangesOfTheUser(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]bool{
		"SET ROLE clerk":                                true,
		"set local role clerk":                          true,
		"RESET ROLE":                                    true,
		"SET SESSION AUTHORIZATION clerk":               true,
		"SELECT set_config('role', $1, true)":           true,
		"SELECT set_config ( 'Role', 'clerk', false)":   true,
		"SELECT set_config($1, $2, true)":               true,
		"SELECT set_config(name, value, true) FROM own": true,
		"DO $$ BEGIN SET LOCAL ROLE clerk; END $$":      true,
		"SET LOCAL search_path = a":                     false,
		"SELECT set_config('app.tenant', $1, true)":     false,
		"SELECT role FROM clerks":                       false,
		"SET CONSTRAINTS ALL IMMEDIATE":                 false,
	} {
		if got := See(sql)&User != 0; got != want {
			t.Errorf("See(%q) finds a change of the user: %v", sql, got)
		}
	}
}

func TestMayEnd(t *testing.T) {
	t.Parallel()
	for want, texts := range map[bool][]string{
		false: {
			"SELECT 1",
			"select case when a then 1 else 2 end; ",
			"-- name: Orders\n(SELECT 'a;commit' FROM orders)",
			"/* why /* really */; COMMIT */ SELECT 1",
			`SELECT ";COMMIT", $$;COMMIT$$, $a$;END$a$`,
			"WITH a AS (SELECT 1) DELETE FROM b; UPDATE c",
			"DO $$ BEGIN COMMIT; END $$",
			"CALL settle()",
			"COPY",
			"",
		},
		true: { // the text with a backslash may be two statements: a setting decides
			"COMMIT",
			"end",
			"SELECT 1; abort",
			"SELECT 1;-- why\n/* why */ ROLLBACK AND CHAIN",
			"PREPARE TRANSACTION 'a'",
			"the name of a prepared statement",
			`SELECT '\'; COMMIT; --'`,
			"SELECT 1 -- why\rAS a; COMMIT",
			"SELECT a$b$; COMMIT; SELECT a$b$",
			"SELECT 1 /* /* */ ' */; COMMIT",
		},
	} {
		for _, sql := range texts {
			if got := MayEnd(sql); got != want {
				t.Errorf("MayEnd(%q) = %v", sql, got)
			}
		}
	}
}
