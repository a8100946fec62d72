package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// quietFor is how often a pipe gets a line of progress.
const quietFor = time.Second

// progress shows how far something is: one line that changes on a terminal, a line every second elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	last     time.Time
	open     bool // a line on the terminal has no end yet
}

func newProgress(out io.Writer) *progress {
	p := &progress{out: out}

	if file, isFile := out.(*os.File); isFile {
		if info, err := file.Stat(); err == nil {
			p.terminal = info.Mode()&os.ModeCharDevice != 0
		}
	}

	return p
}

// updatef shows the newest state.
func (p *progress) updatef(format string, args ...any) {
	text := fmt.Sprintf(format, args...)

	switch {
	case p.terminal:
		fmt.Fprintf(p.out, "\r\x1b[K%s", text)
		p.open = true
	case time.Since(p.last) >= quietFor:
		p.last = time.Now()
		fmt.Fprintln(p.out, text)
	}
}

// done ends the line that changes.
func (p *progress) done() {
	if p.open {
		fmt.Fprintln(p.out)
		p.open = false
	}
}

// linef prints a line that stays.
func (p *progress) linef(format string, args ...any) {
	p.done()
	fmt.Fprintf(p.out, format+"\n", args...)
}
