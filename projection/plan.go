package projection

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
)

// rowPlan moves rows between their Go type and column values. It is worked out once,
// when the projection is built; a row then costs one pass over field positions.
type rowPlan[K, R any] struct {
	projection string
	fields     []planField // in the order of Model.Columns
	keys       []planField // the key columns' fields in R
	keyType    reflect.Type
	keyFields  [][]int // the key columns' fields in K; nil when K is a single value
	revision   []int   // bookkeeping fields in R; nil = not declared
	revisionOK bool
	checks     []int
	checksOK   bool
	scalars    map[string]planScalar
	scalarsIn  []string
}

type planField struct {
	column Column
	index  []int
}

type planScalar struct {
	version  []int
	instance []int
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	mapType  = reflect.TypeFor[map[string]int64]()
)

// newRowPlan derives the plan and the model from the row type, the key type and the
// declared bookkeeping fields. It returns every fault that it finds.
func newRowPlan[K, R any](config Config[K, R]) (*rowPlan[K, R], *Model, []string) {
	rowType := reflect.TypeFor[R]()
	model := &Model{
		Projection: config.Name, Table: config.Table, Checkpoints: config.Checkpoints.Map, Revision: config.Revision.Field,
		HasOutbox: config.Outbox != nil, HasRemoval: config.Removal != nil,
	}
	if config.Removal != nil {
		model.TombstoneTTL = config.Removal.TTL
	}
	plan := &rowPlan[K, R]{projection: config.Name, scalars: map[string]planScalar{}, keyType: reflect.TypeFor[K]()}
	if rowType.Kind() != reflect.Struct {
		return plan, model, []string{fmt.Sprintf("the row type %v is no struct", rowType)}
	}
	fields, faults := structFields(rowType)
	books := newBookFields(config, fields)
	faults = append(faults, books.faults...)
	plan.revision, plan.revisionOK = books.revision, config.Revision.Field != ""
	plan.checks, plan.checksOK = books.checkpoints, config.Checkpoints.Map != ""
	plan.scalars, plan.scalarsIn = books.scalars, sortedKeys(books.scalars)
	for _, source := range plan.scalarsIn {
		scalar := config.Checkpoints.Scalars[source]
		model.Scalars = append(model.Scalars, ScalarColumns{
			Source: source, Version: scalar.Field, Instance: scalar.InstanceField, Offset: scalar.Offset,
		})
	}
	for _, field := range fields {
		if books.taken[field.column.Name] {
			continue
		}
		if strings.HasPrefix(field.column.Name, "rowfold_") {
			faults = append(faults, fmt.Sprintf("column %q: names that begin with rowfold_ are reserved", field.column.Name))
		}
		if field.column.Unique && config.Removal != nil {
			faults = append(faults, fmt.Sprintf("column %q is unique: removal is refused on a read model with unique columns, since a tombstone could not release the value", field.column.Name))
		}
		plan.fields = append(plan.fields, field)
		model.Columns = append(model.Columns, field.column)
		if field.column.Key {
			plan.keys = append(plan.keys, field)
		}
	}
	return plan, model, append(faults, plan.planKey()...)
}

// structFields returns a column for each exported field of a row type.
func structFields(rowType reflect.Type) ([]planField, []string) {
	var fields []planField
	var faults []string
	names := map[string]bool{}
	for _, field := range reflect.VisibleFields(rowType) {
		if !field.IsExported() || field.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(field.Tag.Get("row"), ",")
		if name == "-" {
			continue
		}
		if name == "" {
			name = snakeCase(field.Name)
		}
		if names[name] {
			faults = append(faults, fmt.Sprintf("field %s: the column %q is declared twice", field.Name, name))
		}
		names[name] = true
		column := Column{Name: name}
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "":
			case "key":
				column.Key = true
			case "unique":
				column.Unique = true
			default:
				faults = append(faults, fmt.Sprintf("field %s: unknown option %q in its row tag; use key or unique", field.Name, option))
			}
		}
		kind, nullable, fault := kindOf(field.Type)
		if fault != "" {
			faults = append(faults, fmt.Sprintf("field %s: %s", field.Name, fault))
		}
		column.Kind, column.Nullable = kind, nullable
		if column.Key && (nullable || kind != KindText && kind != KindInt) {
			faults = append(faults, fmt.Sprintf("field %s: a key column is a string or an integer, not a %v", field.Name, field.Type))
		}
		fields = append(fields, planField{column: column, index: field.Index})
	}
	return fields, faults
}

func kindOf(t reflect.Type) (kind Kind, nullable bool, fault string) {
	if t.Kind() == reflect.Pointer {
		kind, _, fault = kindOf(t.Elem())
		return kind, true, fault
	}
	switch {
	case t == timeType:
		return KindTime, false, ""
	case t == rawType:
		return KindJSON, true, ""
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return KindBytes, true, ""
	}
	switch t.Kind() {
	case reflect.String:
		return KindText, false, ""
	case reflect.Bool:
		return KindBool, false, ""
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32:
		return KindInt, false, ""
	case reflect.Float32, reflect.Float64:
		return KindFloat, false, ""
	case reflect.Map, reflect.Slice, reflect.Interface:
		return KindJSON, true, ""
	case reflect.Struct, reflect.Array:
		return KindJSON, false, ""
	default:
		return KindJSON, false, fmt.Sprintf("a %v does not fit in a column: use int64, a string, or leave it out with `row:\"-\"`", t)
	}
}

// bookFields are the bookkeeping fields of a row type.
type bookFields struct {
	taken       map[string]bool
	revision    []int
	checkpoints []int
	scalars     map[string]planScalar
	faults      []string
	fields      []planField
	rowType     reflect.Type
}

func newBookFields[K, R any](config Config[K, R], fields []planField) *bookFields {
	b := &bookFields{taken: map[string]bool{}, scalars: map[string]planScalar{}, fields: fields, rowType: reflect.TypeFor[R]()}
	isInt := func(t reflect.Type) bool { return t.Kind() == reflect.Int64 }
	isString := func(t reflect.Type) bool { return t.Kind() == reflect.String }
	if config.Revision.Field != "" {
		b.revision = b.claim("Revision.Field", config.Revision.Field, "an int64 or *int64", isInt)
	}
	if config.Checkpoints.Map != "" {
		isMap := func(t reflect.Type) bool { return t == mapType }
		b.checkpoints = b.claim("Checkpoints.Map", config.Checkpoints.Map, "a map[string]int64", isMap)
	}
	for _, source := range sortedKeys(config.Checkpoints.Scalars) {
		scalar := config.Checkpoints.Scalars[source]
		where := fmt.Sprintf("Checkpoints.Scalars[%q]", source)
		b.scalars[source] = planScalar{
			version:  b.claim(where+".Field", scalar.Field, "an int64 or *int64", isInt),
			instance: b.claim(where+".InstanceField", scalar.InstanceField, "a string or *string", isString),
		}
	}
	return b
}

// claim finds a bookkeeping field and notes what is wrong with it.
func (b *bookFields) claim(where, name, want string, fits func(reflect.Type) bool) []int {
	fault := func(format string, args ...any) []int {
		b.faults = append(b.faults, where+": "+fmt.Sprintf(format, args...))
		return nil
	}
	at := slices.IndexFunc(b.fields, func(field planField) bool { return field.column.Name == name })
	switch {
	case name == "":
		return fault("it is empty")
	case at < 0:
		return fault("the row type has no column %q", name)
	case b.taken[name]:
		return fault("column %q already holds other bookkeeping", name)
	case b.fields[at].column.Key:
		return fault("column %q is part of the key", name)
	}
	b.taken[name] = true
	fieldType := b.rowType.FieldByIndex(b.fields[at].index).Type
	if fieldType.Kind() == reflect.Pointer {
		fieldType = fieldType.Elem()
	}
	if !fits(fieldType) {
		return fault("column %q is %v, it must be %s", name, fieldType, want)
	}
	return b.fields[at].index
}

// planKey matches the key type with the key columns.
func (p *rowPlan[K, R]) planKey() []string {
	if len(p.keys) == 0 {
		return []string{"the row type has no key column: tag one with `row:\"name,key\"`"}
	}
	if kind, _, _ := kindOf(p.keyType); p.keyType.Kind() != reflect.Struct {
		if len(p.keys) != 1 || p.keys[0].column.Kind != kind {
			return []string{fmt.Sprintf("the key type %v does not fit the key columns: use a struct with a field for each, or the one column's type", p.keyType)}
		}
		return nil
	}
	fields, faults := structFields(p.keyType)
	for _, key := range p.keys {
		at := slices.IndexFunc(fields, func(field planField) bool { return field.column.Name == key.column.Name })
		if at < 0 || fields[at].column.Kind != key.column.Kind {
			faults = append(faults, fmt.Sprintf("the key type %v has no %s field for the key column %q", p.keyType, key.column.Kind, key.column.Name))
			continue
		}
		p.keyFields = append(p.keyFields, fields[at].index)
	}
	if len(fields) != len(p.keys) {
		faults = append(faults, fmt.Sprintf("the key type %v has %d fields, the row type has %d key columns", p.keyType, len(fields), len(p.keys)))
	}
	return faults
}

// keyValues returns the values of a key, in the order of the key columns.
func (p *rowPlan[K, R]) keyValues(key K) []any {
	value := reflect.ValueOf(&key).Elem()
	if p.keyFields == nil {
		return []any{plainValue(value)}
	}
	values := make([]any, len(p.keyFields))
	for i, index := range p.keyFields {
		values[i] = plainValue(value.FieldByIndex(index))
	}
	return values
}

// keyOf is the reverse of keyValues.
func (p *rowPlan[K, R]) keyOf(values []any) (K, error) {
	var key K
	target := reflect.ValueOf(&key).Elem()
	for i, value := range values {
		field := target
		if p.keyFields != nil {
			field = target.FieldByIndex(p.keyFields[i])
		}
		if err := setValue(field, p.keys[i].column, value); err != nil {
			return key, p.valueError(p.keys[i].column, err)
		}
	}
	return key, nil
}

// setKey puts key values into a row.
func (p *rowPlan[K, R]) setKey(row *R, values []any) error {
	target := reflect.ValueOf(row).Elem()
	for i, field := range p.keys {
		if err := setValue(target.FieldByIndex(field.index), field.column, values[i]); err != nil {
			return p.valueError(field.column, err)
		}
	}
	return nil
}

// rowKey returns the key values of a row.
func (p *rowPlan[K, R]) rowKey(row *R) []any {
	value := reflect.ValueOf(row).Elem()
	values := make([]any, len(p.keys))
	for i, field := range p.keys {
		values[i] = plainValue(value.FieldByIndex(field.index))
	}
	return values
}

// state returns the row of stored values, with its bookkeeping fields filled in.
func (p *rowPlan[K, R]) state(values []any, books Bookkeeping) (row R, err error) {
	defer recovered("columns", &err)
	if len(values) != len(p.fields) {
		return row, &ValueError{Projection: p.projection, Err: fmt.Errorf("the store returned %d values for %d columns", len(values), len(p.fields))}
	}
	target := reflect.ValueOf(&row).Elem()
	for i, field := range p.fields {
		if err := setValue(target.FieldByIndex(field.index), field.column, values[i]); err != nil {
			return row, p.valueError(field.column, err)
		}
	}
	p.setBooks(&row, books)
	return row, nil
}

// setBooks fills in the bookkeeping fields of a row, so that users can read them.
func (p *rowPlan[K, R]) setBooks(row *R, books Bookkeeping) {
	target := reflect.ValueOf(row).Elem()
	if p.revisionOK {
		setOptional(target.FieldByIndex(p.revision), books.Revision)
	}
	if p.checksOK {
		target.FieldByIndex(p.checks).Set(reflect.ValueOf(maps.Clone(books.Checkpoints)))
	}
	for _, source := range p.scalarsIn {
		scalar, plan := books.Scalars[source], p.scalars[source]
		setOptional(target.FieldByIndex(plan.version), scalar.Stored)
		var owner *string
		if scalar.Owner != "" {
			owner = &scalar.Owner
		}
		setOptional(target.FieldByIndex(plan.instance), owner)
	}
}

// values returns the column values of a row.
func (p *rowPlan[K, R]) values(row *R) (values []any, err error) {
	defer recovered("columns", &err)
	source := reflect.ValueOf(row).Elem()
	values = make([]any, len(p.fields))
	for i, field := range p.fields {
		value, err := columnValue(source.FieldByIndex(field.index), field.column)
		if err != nil {
			return nil, p.valueError(field.column, err)
		}
		values[i] = value
	}
	return values, nil
}

func (p *rowPlan[K, R]) valueError(column Column, err error) error {
	return &ValueError{Projection: p.projection, Column: column.Name, Err: err}
}

func snakeCase(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if unicode.IsUpper(r) {
			follows := i > 0 && !unicode.IsUpper(runes[i-1]) && runes[i-1] != '_'
			ends := i > 0 && i+1 < len(runes) && unicode.IsUpper(runes[i-1]) && unicode.IsLower(runes[i+1])
			if follows || ends {
				b.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
