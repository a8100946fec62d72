package temporaltest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"
)

const (
	// startTimeout bounds a start. It takes half a second on an idle machine; test machines are not idle.
	startTimeout = 90 * time.Second

	// stopTimeout bounds an orderly stop, after which the process is killed.
	stopTimeout = 30 * time.Second

	// logTail is how much of the server's log a failure shows.
	logTail = 4 << 10
)

// Options describe a private server. The zero value is one in memory, on a free port, without UI.
type Options struct {
	// Database is the path of the SQLite file. Defaults to "", which keeps the state in memory: Kill and Stop lose it.
	Database string

	// Port of the frontend. 0 picks a free one at the first start; Restart keeps it.
	Port int

	// MetricsPort is the port of the Prometheus metrics. 0 serves none.
	MetricsPort int

	// Namespaces to create. Defaults to "default".
	Namespaces []string
}

// Process is a private server in a child process. Its methods are for the goroutine of the test and fail the test when
// the server does not do what they ask.
type Process struct {
	tb      testing.TB
	options Options
	binary  string

	mu     sync.Mutex
	server *child
}

// StartProcess starts a private server and returns when it is ready. The end of the test kills it.
func StartProcess(tb testing.TB, options Options) *Process {
	tb.Helper()

	binary, err := findBinary()
	if err != nil {
		tb.Fatalf("temporaltest: %v", err)
	}

	p := &Process{tb: tb, options: options, binary: binary}

	tb.Cleanup(p.Kill)
	p.Restart()

	return p
}

// Address is the host and port of the frontend. It stays the same over restarts.
func (p *Process) Address() string {
	p.mu.Lock()
	defer p.mu.Unlock()

	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.options.Port))
}

// MetricsURL is the address of the Prometheus metrics, or "" without them.
func (p *Process) MetricsURL() string {
	if p.options.MetricsPort <= 0 {
		return ""
	}

	return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(p.options.MetricsPort)) + "/metrics"
}

// Kill ends the server with SIGKILL, as a crash would, and returns when it is gone. It does nothing when the server does
// not run.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.end((*child).kill)
}

// Stop ends the server in order and returns when it is gone. It does nothing when the server does not run.
func (p *Process) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.end((*child).stop)
}

// Restart kills the server if it runs, and starts it again on the same database and port. It returns when the new one is
// ready.
func (p *Process) Restart() {
	p.tb.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()

	p.end((*child).kill)

	server, err := startChild(p.binary, p.options)
	if err != nil {
		p.tb.Fatalf("temporaltest: %v", err)
	}

	p.server = server
	p.options.Port = server.port
}

func (p *Process) end(how func(*child) error) {
	if p.server == nil {
		return
	}

	if err := how(p.server); err != nil {
		p.tb.Errorf("temporaltest: %v", err)
	}

	p.server = nil
}

// child is one run of the binary. Nothing here starts a goroutine, so that tests which look for leaked ones can hold a
// server: the pipes are plain files, which os/exec hands over as they are.
type child struct {
	cmd   *exec.Cmd
	stdin *os.File // the server stops when this end is closed
	log   *os.File
	port  int
}

// startChild starts the binary and waits until it is ready.
func startChild(binary string, options Options) (*child, error) {
	stdinRead, stdinWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer closeAll(stdinRead)

	stdoutRead, stdoutWrite, err := os.Pipe()
	if err != nil {
		closeAll(stdinWrite)

		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer closeAll(stdoutRead)

	log, err := os.CreateTemp("", "rowfold-dev-*.log")
	if err != nil {
		closeAll(stdinWrite, stdoutWrite)

		return nil, fmt.Errorf("create a log file: %w", err)
	}

	// It is read through its handle, so a test process that is killed leaves no file behind.
	_ = os.Remove(log.Name())

	//nolint:noctx // the server outlives the context of whoever starts it: it ends by Kill, Stop, or with its stdin
	c := &child{cmd: exec.Command(binary, arguments(options)...), stdin: stdinWrite, log: log}
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = stdinRead, stdoutWrite, log

	err = c.cmd.Start()
	closeAll(stdoutWrite) // the child's copy remains, so that the end of the child is the end of the file

	if err != nil {
		closeAll(stdinWrite, log)

		return nil, fmt.Errorf("start %s: %w", binary, err)
	}

	if err := c.awaitReady(stdoutRead); err != nil {
		tail := c.tail()

		return nil, errors.Join(fmt.Errorf("%s is not ready: %w\n%s", binary, err, tail), c.kill())
	}

	return c, nil
}

func arguments(options Options) []string {
	args := []string{
		"server", "--ready-json", "--stop-with-stdin",
		"--port", strconv.Itoa(options.Port),
		"--ui-port", "-1",
		"--metrics-port", strconv.Itoa(options.MetricsPort),
	}

	if options.Database != "" {
		args = append(args, "--db", options.Database)
	}

	for _, namespace := range options.Namespaces {
		args = append(args, "--namespace", namespace)
	}

	return args
}

// awaitReady reads the line with the addresses.
func (c *child) awaitReady(stdout *os.File) error {
	if err := stdout.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}

	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if errors.Is(err, io.EOF) {
		return errors.New("it has ended")
	}

	if err != nil {
		return fmt.Errorf("read its address: %w", err)
	}

	var ready struct {
		Address string `json:"address"`
	}
	if err := json.Unmarshal(line, &ready); err != nil {
		return fmt.Errorf("read its address from %q: %w", line, err)
	}

	_, port, err := net.SplitHostPort(ready.Address)
	if err != nil {
		return fmt.Errorf("read its address: %w", err)
	}

	c.port, err = strconv.Atoi(port)

	return err
}

// kill sends SIGKILL and waits for the end.
func (c *child) kill() error {
	defer closeAll(c.stdin, c.log)

	if err := c.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill the server: %w", err)
	}

	// The error says that the process was killed.
	_ = c.cmd.Wait()

	return nil
}

// stop ends the server in order and waits for the end.
func (c *child) stop() error {
	defer closeAll(c.log)

	timer := time.AfterFunc(stopTimeout, func() { _ = c.cmd.Process.Kill() })
	defer timer.Stop()

	closeAll(c.stdin)

	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("stop the server: %w\n%s", err, c.tail())
	}

	return nil
}

// tail returns the end of the server's log.
func (c *child) tail() string {
	info, err := c.log.Stat()
	if err != nil {
		return ""
	}

	from := max(0, info.Size()-logTail)
	contents, _ := io.ReadAll(io.NewSectionReader(c.log, from, info.Size()-from))

	return string(contents)
}

// closeAll closes files of which no error matters: pipes and a log.
func closeAll(files ...*os.File) {
	for _, file := range files {
		_ = file.Close()
	}
}
