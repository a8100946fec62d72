package projection

import "github.com/rowfold/rowfold/outbox"

// effectOverhead is what an effect's names and keys take in a store, in bytes, on the
// safe side.
const effectOverhead = 512

func effectSize(item *outbox.Item) int { return len(item.Payload) + len(item.ID) + effectOverhead }

// effectLimits returns what one write takes for its effects: the row has its share of
// the bytes.
func (o *FoldOptions) effectLimits() Limits {
	limits := o.Limits
	if limits.MaxEffects == 0 || limits.MaxEffects > outbox.MaxIndex+1 {
		limits.MaxEffects = outbox.MaxIndex + 1
	}
	if limits.MaxBytes > 0 {
		limits.MaxBytes -= min(limits.MaxRowBytes, limits.MaxBytes/2)
	}
	return limits
}

// writes cuts the steps into as few writes as the limits allow, at event borders.
func (f *rowFolder[K, R]) writes() ([]Write, error) {
	limits := f.options.effectLimits()
	guard, status := f.batch.Row.Books, f.batch.Row.Status
	var writes []Write
	for from := 0; from < len(f.steps); {
		to, effects, bytes := from, 0, 0
		for ; to < len(f.steps); to++ {
			for i := range f.steps[to].effects {
				bytes += effectSize(&f.steps[to].effects[i])
			}
			effects += len(f.steps[to].effects)
			if to > from && (effects > limits.MaxEffects || limits.MaxBytes > 0 && bytes > limits.MaxBytes) {
				break
			}
		}
		write, err := f.write(guard, status, f.steps[from:to])
		if err != nil {
			return nil, err
		}
		writes = append(writes, write)
		guard, status, from = write.Books, RowLive, to
		if write.Tombstone {
			status = RowTombstone
		}
	}
	return writes, nil
}

// write returns the write of some steps onto a row as guard has it.
func (f *rowFolder[K, R]) write(guard Bookkeeping, status RowStatus, steps []step[R]) (Write, error) {
	model := f.p.model
	write := Write{Key: f.batch.Row.Key, Guard: guard, GuardStatus: status, Books: guard.Clone(), ID: f.options.WriteID()}
	books := &write.Books
	atHand := map[Instance]bool{}
	for _, s := range steps {
		atHand[s.in] = true
		model.land(books, s.in, s.version)
		if s.closes {
			markClosed(books, s.in, f.options.Now)
		}
		write.Effects = append(write.Effects, s.effects...)
	}
	dropClosed(books, f.options.Now.Add(-f.p.replayWindow), atHand)
	if model.Revision != "" {
		revision := f.p.initialRevision
		if guard.Revision != nil {
			revision = *guard.Revision + 1
		}
		books.Revision = &revision
		for i := range write.Effects {
			write.Effects[i].Sequence = outbox.SequenceOf(revision, i)
		}
	}
	books.Definition = f.p.version
	last := &steps[len(steps)-1]
	if !last.live {
		write.Tombstone = true
		if model.TombstoneTTL > 0 && !model.HasOutbox {
			write.ExpiresAt = new(f.options.Now.Add(model.TombstoneTTL).UTC())
		}
		return write, nil
	}
	values, err := f.p.rows.values(&last.row)
	if err != nil {
		return write, err
	}
	write.Values = values
	if limit := f.options.Limits.MaxRowBytes; limit > 0 {
		if size := model.Size(values, write.Books); size > limit {
			return write, &RowTooLarge{Projection: f.p.name, Key: write.Key, Size: size, Limit: limit}
		}
	}
	return write, nil
}
