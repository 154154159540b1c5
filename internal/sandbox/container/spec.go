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

// Mark is the environment variable that all processes of a sandbox are started with; its value is the sandbox's id.
const Mark = "WEFT_SANDBOX"

// Kind says what role a container has in its pod.
type Kind string

// The kinds, in the order they are started.
const (
	Ephemeral Kind = "ephemeral"
	Init      Kind = "init"
	Ordinary  Kind = "container"
)

// File is a file of the host that the container sees at another path.
type File struct {
	Source string `json:"source"`
	Target string `json:"target"`
}

// Spec is what a container is made from.
type Spec struct {
	ID      string    `json:"id"`
	Sandbox string    `json:"sandbox"`
	PodUID  string    `json:"podUID"`
	Name    string    `json:"name"`
	Kind    Kind      `json:"kind"`
	Attempt int       `json:"attempt"` // how often it was started before
	Created time.Time `json:"created"`
	Image   string    `json:"image,omitempty"` // recorded only
	Argv    []string  `json:"argv"`
	Env     []string  `json:"env,omitempty"`
	Dir     string    `json:"dir,omitempty"`
	Log     string    `json:"log"`
	// Pause is the process whose namespaces are joined.
	Pause    process.ID `json:"pause"`
	HostNet  bool       `json:"hostNet,omitempty"` // the network and host name of the node
	HostIPC  bool       `json:"hostIPC,omitempty"`
	HostPID  bool       `json:"hostPID,omitempty"`
	SharePID bool       `json:"sharePID,omitempty"` // the process namespace of Pause
	Files    []File     `json:"files,omitempty"`
}

// State is what a container is doing.
type State string

// The states, in CRI's terms.
const (
	Created State = "created"
	Running State = "running"
	Exited  State = "exited"
	Unknown State = "unknown"
)

// Status is a container as it is now.
type Status struct {
	Spec
	State    State      `json:"state"`
	Starting bool       `json:"starting,omitempty"` // created, and its monitor is about to start it
	Process  process.ID `json:"process,omitzero"`
	Started  time.Time  `json:"started,omitzero"`
	Finished time.Time  `json:"finished,omitzero"`
	ExitCode int        `json:"exitCode"`
	Reason   string     `json:"reason,omitempty"`
	Message  string     `json:"message,omitempty"`
	// Warnings are what could not be set up and was done without.
	Warnings []string `json:"warnings,omitempty"`
}

// Exit codes of containers whose command did not end by itself.
const (
	CodeNotStarted = 128 // the command could not be started
	CodeLost       = 137 // nobody saw how it ended
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

// NewID is a fresh id of a container or sandbox: 64 hexadecimal digits.
func NewID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Create makes the container's directory in parent. Nothing runs yet.
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

// Inspect tells what the container is doing. The error wraps os.ErrNotExist when there is none.
func Inspect(dir string) (Status, error) {
	var st Status
	if err := process.ReadJSON(filepath.Join(dir, "spec.json"), &st.Spec); err != nil {
		return st, fmt.Errorf("container %s: %w", filepath.Base(dir), err)
	}
	return Refresh(dir, st.Spec), nil
}

// Refresh is Inspect for a container whose spec is known: that never changes.
func Refresh(dir string, spec Spec) Status {
	st := Status{Spec: spec}
	watched := watched(dir) // asked first: what a dying monitor writes is seen below
	var run running
	ran := process.ReadJSON(filepath.Join(dir, "state.json"), &run) == nil
	if ran {
		st.Process, st.Started, st.Warnings = run.Process, run.Started, run.Warnings
	}
	var end exit
	switch err := process.ReadJSON(filepath.Join(dir, "exit.json"), &end); {
	case err == nil:
		st.State, st.ExitCode, st.Finished, st.Reason, st.Message = Exited, end.Code, end.Finished, end.Reason, end.Message
	case ran && (watched || run.Process.Alive()):
		st.State = Running
	case watched:
		st.State, st.Starting = Created, true
	case ran:
		st.State, st.ExitCode, st.Finished = Exited, CodeLost, run.Started
		st.Reason, st.Message = "ContainerStatusUnknown", "its monitor was killed, nobody saw how it ended"
	case !os.IsNotExist(err):
		st.State, st.Message = Unknown, err.Error()
	default:
		st.State = Created
	}
	return st
}
