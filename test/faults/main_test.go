// SPDX-License-Identifier: Apache-2.0

package faults_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weft-net/weft/internal/endpoint/standalone"
	"github.com/weft-net/weft/internal/nettest"
)

// The test binary has several roles: by the name of a link it is a plugin, by a variable it is an agent.
const (
	stepVar  = "WEFT_FAULT_STEP"  // the number of the step at which to fail
	howVar   = "WEFT_FAULT_HOW"   // "kill", "error", or "count": print the number of steps to standard error
	agentVar = "WEFT_FAULT_AGENT" // the agent's state directory
	marker   = "marker"           // a foreign plugin
)

func TestMain(m *testing.M) {
	name := filepath.Base(os.Args[0])
	switch {
	case name == marker:
		os.Exit(markerPlugin())
	case name == "bridge" || name == "ptp" || name == "loopback":
		os.Exit(pluginProcess())
	case os.Getenv(agentVar) != "":
		os.Exit(agentProcess(os.Getenv(agentVar)))
	}
	os.Exit(nettest.Main(m))
}

// pluginProcess is weft-plugin with a failpoint at each step.
func pluginProcess() int {
	steps := &stepper{how: os.Getenv(howVar)}
	steps.at, _ = strconv.Atoi(os.Getenv(stepVar))
	code := standalone.Main(context.Background(), standalone.Env{
		Argv0: os.Args[0], Args: os.Args[1:], Getenv: os.Getenv, Environ: os.Environ(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now, Failpoint: steps.step,
	})
	if steps.how == "count" {
		fmt.Fprint(os.Stderr, steps.n)
	}
	return code
}

var errStep = errors.New("made to fail")

// stepper counts steps and fails at one of them.
type stepper struct {
	mu    sync.Mutex
	how   string
	at, n int
}

func (s *stepper) reset(how string, at int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.how, s.at, s.n = how, at, 0
}

func (s *stepper) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}

func (s *stepper) step(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	if s.n != s.at {
		return nil
	}
	switch s.how {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		time.Sleep(time.Hour)
	case "error":
		return fmt.Errorf("step %d, %s: %w", s.n, name, errStep)
	}
	return nil
}

// markerPlugin is a foreign plugin that creates a file for each attachment and passes the result on.
func markerPlugin() int {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return 1
	}
	var conf struct {
		CNIVersion string          `json:"cniVersion"`
		Marks      string          `json:"marks"`
		Slow       bool            `json:"slow"`
		Prev       json.RawMessage `json:"prevResult"`
	}
	if err := json.Unmarshal(in, &conf); err != nil {
		return 1
	}
	mark := filepath.Join(conf.Marks, os.Getenv("CNI_CONTAINERID")+"."+os.Getenv("CNI_IFNAME"))
	switch os.Getenv("CNI_COMMAND") {
	case "ADD":
		if os.WriteFile(mark, []byte(strconv.Itoa(os.Getpid())), 0o600) != nil {
			return 1
		}
		if conf.Slow {
			time.Sleep(time.Minute)
		}
		fmt.Printf("%s", conf.Prev)
	case "DEL":
		if err := os.Remove(mark); err != nil && !errors.Is(err, os.ErrNotExist) {
			return 1
		}
	case "CHECK":
		if _, err := os.Stat(mark); err != nil {
			fmt.Printf(`{"cniVersion":%q,"code":120,"msg":"no mark"}`, conf.CNIVersion)
			return 1
		}
	}
	return 0
}
