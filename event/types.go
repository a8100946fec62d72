package event

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
)

// TypeDef declares one type of event or effect: its stored name, its Go type, its
// schema version and its upcasters. It is made by [Type].
type TypeDef struct {
	name    string
	goType  reflect.Type
	version int
	upcasts map[int]UpcastFunc
	decode  func(json.RawMessage) (any, error)
}

// UpcastFunc brings a payload from one schema version to the next one. It is a pure
// function of the payload.
type UpcastFunc func(json.RawMessage) (json.RawMessage, error)

// TypeOption sets a property of a type.
type TypeOption func(*TypeDef)

// Type declares that values of the Go type T are stored under name. Payloads are
// JSON, by encoding/json.
func Type[T any](name string, opts ...TypeOption) TypeDef {
	def := TypeDef{
		name:    name,
		goType:  reflect.TypeFor[T](),
		version: 1,
		upcasts: map[int]UpcastFunc{},
		decode: func(payload json.RawMessage) (any, error) {
			var value T
			if err := json.Unmarshal(payload, &value); err != nil {
				return nil, fmt.Errorf("%w", err)
			}
			return value, nil
		},
	}
	for _, opt := range opts {
		opt(&def)
	}
	return def
}

// SchemaVersion sets the schema version that new payloads are stamped with.
// Defaults to 1.
func SchemaVersion(version int) TypeOption {
	return func(def *TypeDef) { def.version = version }
}

// Upcast adds the step from schema version from to from+1. A type of schema
// version n needs the steps 1 … n-1.
func Upcast(from int, step UpcastFunc) TypeOption {
	return func(def *TypeDef) { def.upcasts[from] = step }
}

// Name returns the name that the type is stored under.
func (d TypeDef) Name() string { return d.name }

// LatestSchema returns the schema version that new payloads are stamped with.
func (d TypeDef) LatestSchema() int { return d.version }

func (d TypeDef) faults() []string {
	var faults []string
	if d.name == "" {
		faults = append(faults, fmt.Sprintf("type %v: its name is empty", d.goType))
	}
	if d.version < 1 {
		faults = append(faults, fmt.Sprintf("type %s: schema version %d: it must be 1 or more", d.name, d.version))
	}
	for from := 1; from < d.version; from++ {
		if d.upcasts[from] == nil {
			faults = append(faults, fmt.Sprintf("type %s: add event.Upcast(%d, …): schema version %d is declared", d.name, from, d.version))
		}
	}
	for from := range d.upcasts {
		if from < 1 || from >= d.version {
			faults = append(faults, fmt.Sprintf("type %s: the upcast from %d leads beyond schema version %d", d.name, from, d.version))
		}
	}
	return faults
}

// Registry knows a closed set of types by their stored names and their Go types.
// It is safe for use by several goroutines.
type Registry struct {
	owner  string
	byName map[string]TypeDef
	byType map[reflect.Type]TypeDef
	names  []string
}

// NewRegistry builds a registry; owner is the stream or projection that errors
// name. All faults are reported at once, as a *[DefinitionError].
func NewRegistry(owner string, types ...TypeDef) (*Registry, error) {
	registry := &Registry{owner: owner, byName: map[string]TypeDef{}, byType: map[reflect.Type]TypeDef{}}
	var faults []string
	if len(types) == 0 {
		faults = append(faults, "no types: declare one with event.Type")
	}
	for _, def := range types {
		faults = append(faults, def.faults()...)
		if _, taken := registry.byName[def.name]; taken {
			faults = append(faults, fmt.Sprintf("type %s: the name is declared twice", def.name))
		}
		if _, taken := registry.byType[def.goType]; taken {
			faults = append(faults, fmt.Sprintf("type %s: the Go type %v is declared twice", def.name, def.goType))
		}
		registry.byName[def.name] = def
		registry.byType[def.goType] = def
		registry.names = append(registry.names, def.name)
	}
	if len(faults) > 0 {
		return nil, &DefinitionError{What: owner, Faults: faults}
	}
	slices.Sort(registry.names)
	return registry, nil
}

// Names returns the stored names of all types, sorted.
func (r *Registry) Names() []string { return slices.Clone(r.names) }

// Encode returns the stored form of a value of a declared type. Errors:
// *[UnknownType], *[EncodeError].
func (r *Registry) Encode(value any) (NewEvent, error) {
	def, known := r.byType[reflect.TypeOf(value)]
	if !known {
		return NewEvent{}, &UnknownType{Owner: r.owner, Type: fmt.Sprintf("%T", value), Known: r.names}
	}
	payload, err := json.Marshal(value)
	if err != nil {
		return NewEvent{}, &EncodeError{Owner: r.owner, Type: def.name, Err: err}
	}
	return NewEvent{Type: def.name, SchemaVersion: def.version, Payload: payload}, nil
}

// Decode returns the value of a stored payload, brought to its newest shape.
// Errors: *[UnknownType], *[UnknownSchemaVersion], *[DecodeError].
func (r *Registry) Decode(name string, schemaVersion int, payload json.RawMessage) (any, error) {
	def, known := r.byName[name]
	if !known {
		return nil, &UnknownType{Owner: r.owner, Type: name, Known: r.names}
	}
	if schemaVersion < 1 || schemaVersion > def.version {
		return nil, &UnknownSchemaVersion{Owner: r.owner, Type: name, Version: schemaVersion, Latest: def.version}
	}
	for from := schemaVersion; from < def.version; from++ {
		upcast, err := def.upcasts[from](payload)
		if err != nil {
			return nil, &DecodeError{Owner: r.owner, Type: name, SchemaVersion: from, Err: fmt.Errorf("upcast: %w", err)}
		}
		payload = upcast
	}
	value, err := def.decode(payload)
	if err != nil {
		return nil, &DecodeError{Owner: r.owner, Type: name, SchemaVersion: schemaVersion, Err: err}
	}
	return value, nil
}
