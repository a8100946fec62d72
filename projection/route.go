package projection

import "github.com/rowfold/rowfold/event"

// decodeResult is what a stream made of an envelope. It is kept per record, so that a
// record is decoded once however many sources read it.
type decodeResult struct {
	value any
	err   error
}

// routed says where one source sends an event: to a row, to none, or nowhere since
// it cannot be read.
type routed struct {
	instance Instance
	key      string // the row key's text; empty = no row
	decoded  any
	err      error
}

// route sends an event through every source that reads its stream. decoded is the
// record's own cache, by stream.
func (p *Projection[K, R]) route(envelope event.Envelope, decoded map[any]decodeResult) []routed {
	var routes []routed
	for i, source := range p.sources {
		info := p.infos[i]
		if info.Stream != envelope.Stream {
			continue
		}
		result, known := decoded[source.stream()]
		if !known {
			result.value, result.err = source.decode(envelope)
			decoded[source.stream()] = result
		}
		to := routed{instance: Instance{Source: info.Name, StreamID: envelope.StreamID}, decoded: result.value, err: result.err}
		if to.err == nil {
			to.key, to.err = p.routeKey(source, result.value)
		}
		routes = append(routes, to)
	}
	return routes
}

func (p *Projection[K, R]) routeKey(source AnySource[K, R], decoded any) (string, error) {
	key, found, err := source.key(decoded)
	if err != nil || !found {
		return "", err
	}
	return p.model.KeyText(p.rows.keyValues(key))
}

// RowEvent returns the event of an envelope as the source's event of its row. It
// reports false when the event belongs to no row, or to another one.
func (p *Projection[K, R]) RowEvent(source, rowKey string, envelope event.Envelope) (RowEvent, bool, error) {
	for _, to := range p.route(envelope, map[any]decodeResult{}) {
		if to.instance.Source != source {
			continue
		}
		if to.err != nil {
			return RowEvent{}, false, to.err
		}
		return RowEvent{Instance: to.instance, Envelope: envelope, decoded: to.decoded}, to.key == rowKey, nil
	}
	return RowEvent{}, false, nil
}
