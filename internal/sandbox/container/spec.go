// SPDX-License-Identifier: Apache-2.0

package container

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/sandbox/process"
)

// EnvSandbox is the environment variable that all processes of a sandbox have; its value is the sandbox's ID.
const EnvSandbox = "WEFT_SANDBOX"

// Kind is the kind of a container in its pod.
type Kind string

// The kinds, in the order in which they start.
const (
	Ephemeral Kind = "ephemeral"
	Init      Kind = "init"
	Regular   Kind = "container"
)

// File is a bind mount of a host file into the container.
type File struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Spec is the specification of a container.
type Spec struct {
	ID      string    `json:"id"`
	Sandbox string    `json:"sandbox"`
	PodUID  string    `json:"podUID"`
	Name    string    `json:"name"`
	Kind    Kind      `json:"kind"`
	Attempt int       `json:"attempt"` // number of earlier starts
	Created time.Time `json:"created"`
	Image   string    `json:"image,omitempty"` // recorded only
	Argv    []string  `json:"argv"`
	Env     []string  `json:"env,omitempty"`
	Dir     string    `json:"dir,omitempty"`
	Log     string    `json:"log"`
	// Pause is the process whose namespaces the container joins.
	Pause    process.ID `json:"pause"`
	HostNet  bool       `json:"hostNet,omitempty"` // use the node's network and host name
	HostIPC  bool       `json:"hostIPC,omitempty"`
	HostPID  bool       `json:"hostPID,omitempty"`
	SharePID bool       `json:"sharePID,omitempty"` // join the PID namespace of Pause
	Files    []File     `json:"files,omitempty"`
}

// State is the state of a container.
type State string

// The container states of CRI.
const (
	Created State = "created"
	Running State = "running"
	Exited  State = "exited"
	Unknown State = "unknown"
)

// Status is the current status of a container.
type Status struct {
	Spec
	State    State      `json:"state"`
	Starting bool       `json:"starting,omitempty"` // created, and its monitor is starting it
	Process  process.ID `json:"process,omitzero"`
	Started  time.Time  `json:"started,omitzero"`
	Finished time.Time  `json:"finished,omitzero"`
	ExitCode int        `json:"exitCode"`
	Reason   string     `json:"reason,omitempty"`
	Message  string     `json:"message,omitempty"`
	// Warnings name parts of the setup that failed and are not essential.
	Warnings []string `json:"warnings,omitempty"`
}

// Exit codes of containers without an exit code of their own.
const (
	CodeNotStarted = 128 // the command could not be started
	CodeLost       = 137 // the exit code is unknown
)

// running is state.json.
type running struct {
	Process  process.ID `json:"process"`
	Started  time.Time  `json:"started"`
	Warnings []string   `json:"warnings,omitempty"`
}

// exit is exit.json.
type exit struct {
	Code     int       `json:"code"`
	Finished time.Time `json:"finished"`
	Reason   string    `json:"reason,omitempty"`
	Message  string    `json:"message,omitempty"`
}

// NewID returns a random ID for a container or sandbox: 64 hexadecimal digits.
func NewID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Create creates the container's directory in parent. It starts no process.
func Create(parent string, spec Spec) (string, error) {
	dir := filepath.Join(parent, spec.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("container %s: %w", spec.Name, err)
	}
	if err := os.MkdirAll(filepath.Dir(spec.Log), 0o755); err != nil {
		return "", errors.Join(fmt.Errorf("container %s: log: %w", spec.Name, err), os.RemoveAll(dir))
	}
	if err := process.WriteJSON(filepath.Join(dir, "spec.json"), spec); err != nil {
		return "", errors.Join(fmt.Errorf("container %s: %w", spec.Name, err), os.RemoveAll(dir))
	}
	return dir, nil
}

// Inspect returns the status of the container. The error wraps os.ErrNotExist if the container does not exist.
func Inspect(dir string) (Status, error) {
	var st Status
	if err := process.ReadJSON(filepath.Join(dir, "spec.json"), &st.Spec); err != nil {
		return st, fmt.Errorf("container %s: %w", filepath.Base(dir), err)
	}
	return Refresh(dir, st.Spec), nil
}

// Refresh is like Inspect for a known spec, which never changes.
func Refresh(dir string, spec Spec) Status {
	st := Status{Spec: spec}
	monitored := monitored(dir) // first: the files that an exiting monitor writes are read below
	var run running
	ran := process.ReadJSON(filepath.Join(dir, "state.json"), &run) == nil
	if ran {
		st.Process, st.Started, st.Warnings = run.Process, run.Started, run.Warnings
	}
	var end exit
	switch err := process.ReadJSON(filepath.Join(dir, "exit.json"), &end); {
	case err == nil:
		st.State, st.ExitCode, st.Finished, st.Reason, st.Message = Exited, end.Code, end.Finished, end.Reason, end.Message
	case ran && (monitored || run.Process.Alive()):
		st.State = Running
	case monitored:
		st.State, st.Starting = Created, true
	case ran:
		st.State, st.ExitCode, st.Finished = Exited, CodeLost, run.Started
		st.Reason, st.Message = "ContainerStatusUnknown", "the container's monitor was killed; the exit code is unknown"
	case !os.IsNotExist(err):
		st.State, st.Message = Unknown, err.Error()
	default:
		st.State = Created
	}
	return st
}
