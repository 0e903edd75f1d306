// Package sqlfile reads the SQL statements of a package from files into the fields of a struct.
package sqlfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"reflect"
	"strings"
	"unicode"
)

// Read returns a T, which is a struct of strings. Each field has the text of a file: the field
// JobItems has the text of sql/job_items.sql. Read returns an error if the file of a field is
// missing, or if there is no field for a file.
func Read[T any](files fs.FS) (T, error) {
	var statements T
	found, err := fs.Glob(files, "sql/*.sql")
	if err != nil {
		return statements, fmt.Errorf("look for statements: %w", err)
	}
	unused := make(map[string]bool, len(found))
	for _, file := range found {
		unused[file] = true
	}
	var errs []error
	each(&statements, func(name string, field reflect.Value) {
		file := path.Join("sql", fileOf(name))
		text, err := fs.ReadFile(files, file)
		errs = append(errs, err)
		field.SetString(string(text))
		delete(unused, file)
	})
	for file := range unused {
		errs = append(errs, fmt.Errorf("%s belongs to no field", file))
	}
	return statements, errors.Join(errs...)
}

// MustRead is [Read] for files that are embedded in the program. It panics if Read returns an
// error.
func MustRead[T any](files fs.FS) T {
	statements, err := Read[T](files)
	if err != nil {
		panic("read statements: " + err.Error())
	}
	return statements
}

// Map returns the statements as the given function changes them, for instance to another schema.
func Map[T any](statements T, change func(sql string) string) T {
	each(&statements, func(_ string, field reflect.Value) { field.SetString(change(field.String())) })
	return statements
}

// Names returns a map of the statements. The key is the name of the file, without sql/ and .sql.
func Names[T any](statements T) map[string]string {
	named := make(map[string]string)
	each(&statements, func(name string, field reflect.Value) {
		named[strings.TrimSuffix(fileOf(name), ".sql")] = field.String()
	})
	return named
}

// each calls do for each field of a struct.
func each[T any](statements *T, do func(name string, field reflect.Value)) {
	v := reflect.ValueOf(statements).Elem()
	for i := range v.NumField() {
		do(v.Type().Field(i).Name, v.Field(i))
	}
}

// fileOf returns the name of a field's file: job_items.sql for JobItems, by_id.sql for ByID.
func fileOf(field string) string {
	var name strings.Builder
	before := 'A'
	for _, r := range field {
		if unicode.IsUpper(r) && !unicode.IsUpper(before) {
			name.WriteByte('_')
		}
		name.WriteRune(unicode.ToLower(r))
		before = r
	}
	return name.String() + ".sql"
}
