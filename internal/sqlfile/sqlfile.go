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

// Read returns a T, a struct of strings. Each field has the text of its file: the field JobItems
// has that of sql/job_items.sql. It returns an error if a file is missing, or if a file belongs to
// no field.
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

// Map changes each statement, for instance for a schema, and returns the result.
func Map[T any](statements T, change func(sql string) string) T {
	each(&statements, func(_ string, field reflect.Value) { field.SetString(change(field.String())) })
	return statements
}

// Names returns the statements by the names of their files, without sql/ and .sql.
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

// fileOf returns the name of the file of a field: job_items.sql of JobItems, by_id.sql of
// ByID.
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
