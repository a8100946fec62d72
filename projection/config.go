package projection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowfold/rowfold/event"
)

// Config declares a projection: rows of type R, named by keys of type K.
//
// R is a struct. Each exported field is a column, named by its `row` tag, or by the
// field's name in snake_case:
//
//	type Board struct {
//		IATA        string           `row:"iata,key"`
//		Arrivals    int64            `row:"arrivals"`
//		Checkpoints map[string]int64 `row:"checkpoints"`
//		Revision    int64            `row:"revision"`
//	}
//
// The options "key" and "unique" follow the name; "-" leaves a field out. Strings,
// integers, floats, bools, time.Time and []byte are columns of their own kind, a
// pointer to one of them is a nullable column, and everything else is JSON.
//
// K is a string, an integer, or a struct with one field for each key column.
type Config[K, R any] struct {
	// Name names the projection in stores, effect ids and workflow ids. It never changes.
	Name string
	// Version is the version of this definition; raise it when the fold changes.
	// Defaults to 1.
	Version int
	// Table is the table of the rows. Defaults to the name in snake_case.
	Table string
	// Initial returns the row of a key before its first event. The key fields are set
	// from the key, whatever it returns.
	Initial func(key K) R
	// Sources are what the projection reads. Within one write they are folded in this
	// order, then by stream id, then by version.
	Sources []AnySource[K, R]
	// Checkpoints says where the checkpoints of instances are kept.
	Checkpoints Checkpoints
	// Revision names the field that every write raises and that guards every write. It
	// may be left empty by a projection with one source and no outbox, whose
	// guard is then the checkpoint itself.
	Revision Revision
	// Removal allows evolve to return [RemoveRow]. nil = it is not allowed.
	Removal *Removal
	// Outbox declares the types of effects. nil = there are none.
	Outbox *Outbox
	// ReplayWindow is how far back events may be delivered again. Defaults to 7 days.
	ReplayWindow time.Duration
}

// Checkpoints says where the checkpoints of instances are kept: in a map, in fields
// of their own, or both.
type Checkpoints struct {
	// Map names the field of type map[string]int64; empty = there is none.
	Map string
	// Scalars map sources to fields of their own. An instance that finds its source's
	// field owned by another one goes to the map.
	Scalars map[string]Scalar
}

// Scalar keeps the checkpoint of one instance of a source in a field of its own.
type Scalar struct {
	// Field names the integer field that holds version + Offset.
	Field string
	// Offset is added to the version. Defaults to 0.
	Offset int64
	// InstanceField names the string field that holds the owning stream id. An empty
	// one is adopted by the first instance that writes it.
	InstanceField string
}

// Revision names the revision field.
type Revision struct {
	// Field names an integer field.
	Field string
	// Initial is the revision of a row's first write. nil = 1.
	Initial *int64
}

// Removal configures tombstones.
type Removal struct {
	// TTL is how long a tombstone is kept once its row has no pending effects; 0 = for
	// ever. It must be longer than FeedRetention + LongestPark + ReplayWindow, since
	// an event that comes after its tombstone's end creates the row again.
	TTL time.Duration
	// FeedRetention is how long the feed keeps events. Defaults to 24 hours.
	FeedRetention time.Duration
	// LongestPark is how long an instance may stay parked. Defaults to 14 days.
	LongestPark time.Duration
}

// Outbox declares the effects of a projection.
type Outbox struct {
	// Effects are the types of values that Source.Effects returns.
	Effects []event.TypeDef
}

// Defaults of [Config] and [Removal].
const (
	DefaultReplayWindow  = 7 * 24 * time.Hour
	DefaultFeedRetention = 24 * time.Hour
	DefaultLongestPark   = 14 * 24 * time.Hour
)

// Definition is a built projection of any row type, as workers and stores see it. Only
// *[Projection] implements it.
type Definition interface {
	// Name returns the projection's name.
	Name() string
	// Version returns the version of the definition.
	Version() int
	// Model returns how the rows are stored. It must not be changed.
	Model() *Model
	// Sources describes the sources, in declared order.
	Sources() []SourceInfo
	// EffectTypes returns the types of the effects; nil = there is no outbox.
	EffectTypes() *event.Registry
	// Fold computes the writes and outcomes of rows. It is pure; see [RowBatch].
	Fold(ctx context.Context, rows []RowBatch, options FoldOptions) []RowFold

	route(envelope event.Envelope, decoded map[any]decodeResult) []routed
	sourceInfo(name string) SourceInfo
	sourceIndexed(name string) EventIndex
}

// Projection is a built projection. It is immutable and safe for use by several
// goroutines.
type Projection[K, R any] struct {
	name            string
	version         int
	initial         func(key K) R
	sources         []AnySource[K, R]
	infos           []SourceInfo
	byName          map[string]int
	model           *Model
	rows            *rowPlan[K, R]
	initialRevision int64
	effectTypes     *event.Registry
	replayWindow    time.Duration
}

var _ Definition = (*Projection[string, struct{}])(nil)

// New builds a projection. All faults of the declaration are reported at once, as an
// *event.DefinitionError.
func New[K, R any](config Config[K, R]) (*Projection[K, R], error) {
	if config.Version == 0 {
		config.Version = 1
	}
	if config.ReplayWindow == 0 {
		config.ReplayWindow = DefaultReplayWindow
	}
	if config.Table == "" {
		config.Table = snakeCase(config.Name)
	}
	p := &Projection[K, R]{
		name: config.Name, version: config.Version, initial: config.Initial, sources: config.Sources,
		byName: map[string]int{}, initialRevision: 1, replayWindow: config.ReplayWindow,
	}
	if config.Revision.Initial != nil {
		p.initialRevision = *config.Revision.Initial
	}
	faults := p.checkSources(config)
	faults = append(faults, checkGeneral(config)...)
	plan, model, planFaults := newRowPlan(config)
	faults = append(faults, planFaults...)
	p.rows, p.model = plan, model
	if config.Outbox != nil {
		registry, err := event.NewRegistry("outbox of projection "+config.Name, config.Outbox.Effects...)
		if definition, ok := errors.AsType[*event.DefinitionError](err); ok {
			faults = append(faults, definition.Faults...)
		}
		p.effectTypes = registry
	}
	if len(faults) > 0 {
		return nil, &event.DefinitionError{What: "projection " + config.Name, Faults: faults}
	}
	return p, nil
}

// Must is [New] for package-level variables: it panics on a fault.
func Must[K, R any](config Config[K, R]) *Projection[K, R] {
	p, err := New(config)
	if err != nil {
		panic(err)
	}
	return p
}

// Name implements [Definition].
func (p *Projection[K, R]) Name() string { return p.name }

// Version implements [Definition].
func (p *Projection[K, R]) Version() int { return p.version }

// Model implements [Definition].
func (p *Projection[K, R]) Model() *Model { return p.model }

// Sources implements [Definition].
func (p *Projection[K, R]) Sources() []SourceInfo { return slices.Clone(p.infos) }

// EffectTypes implements [Definition].
func (p *Projection[K, R]) EffectTypes() *event.Registry { return p.effectTypes }

// KeyText returns the text of a row's key. The error is an *[IncompleteKey].
func (p *Projection[K, R]) KeyText(key K) (string, error) {
	return p.model.KeyText(p.rows.keyValues(key))
}

func (p *Projection[K, R]) sourceIndex(name string) int {
	if i, known := p.byName[name]; known {
		return i
	}
	return -1
}

func (p *Projection[K, R]) sourceInfo(name string) SourceInfo { return p.infos[p.byName[name]] }

func (p *Projection[K, R]) sourceIndexed(name string) EventIndex {
	if i := p.sourceIndex(name); i >= 0 {
		return p.sources[i].index()
	}
	return nil
}

func (p *Projection[K, R]) checkSources(config Config[K, R]) []string {
	var faults []string
	if len(config.Sources) == 0 {
		faults = append(faults, "Sources is empty: declare what the projection reads")
	}
	for i, source := range config.Sources {
		if source == nil {
			faults = append(faults, fmt.Sprintf("Sources[%d] is nil", i))
			continue
		}
		faults = append(faults, source.faults()...)
		info := source.info()
		if info.Name == "" || strings.Contains(info.Name, "#") {
			faults = append(faults, fmt.Sprintf("Sources[%d]: the name %q is empty or holds '#'", i, info.Name))
		}
		if _, taken := p.byName[info.Name]; taken {
			faults = append(faults, fmt.Sprintf("source %q is declared twice", info.Name))
		}
		if _, scalar := config.Checkpoints.Scalars[info.Name]; !scalar && config.Checkpoints.Map == "" {
			faults = append(faults, fmt.Sprintf("source %q has no checkpoint position: set Checkpoints.Map or Checkpoints.Scalars[%q]", info.Name, info.Name))
		}
		if info.Emits && config.Outbox == nil {
			faults = append(faults, fmt.Sprintf("source %q has Effects: declare their types in Config.Outbox", info.Name))
		}
		p.byName[info.Name] = i
		p.infos = append(p.infos, info)
	}
	for _, name := range sortedKeys(config.Checkpoints.Scalars) {
		if _, known := p.byName[name]; !known {
			faults = append(faults, fmt.Sprintf("Checkpoints.Scalars[%q]: there is no such source", name))
		}
	}
	return faults
}

func checkGeneral[K, R any](config Config[K, R]) []string {
	var faults []string
	if config.Name == "" || strings.ContainsAny(config.Name, "#/") {
		faults = append(faults, fmt.Sprintf("Name %q is empty or holds '#' or '/'", config.Name))
	}
	if config.Version < 1 {
		faults = append(faults, fmt.Sprintf("Version is %d: it must be 1 or more", config.Version))
	}
	if config.Initial == nil {
		faults = append(faults, "Initial is nil: say what a row is before its first event")
	}
	if config.Revision.Field == "" && len(config.Sources) > 1 {
		faults = append(faults, "Revision.Field is empty: several sources need a revision to guard the row")
	}
	if config.Revision.Field == "" && config.Outbox != nil {
		faults = append(faults, "Revision.Field is empty: an outbox needs a revision to number its effects")
	}
	if config.Revision.Initial != nil && *config.Revision.Initial < 0 {
		faults = append(faults, "Revision.Initial is negative")
	}
	if r := config.Removal; r != nil && r.TTL != 0 {
		retention, park := r.FeedRetention, r.LongestPark
		if retention == 0 {
			retention = DefaultFeedRetention
		}
		if park == 0 {
			park = DefaultLongestPark
		}
		if least := retention + park + config.ReplayWindow; r.TTL <= least {
			faults = append(faults, fmt.Sprintf("Removal.TTL is %s: it must be above FeedRetention + LongestPark + ReplayWindow = %s", r.TTL, least))
		}
	}
	return faults
}
