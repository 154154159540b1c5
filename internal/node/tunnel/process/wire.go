// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/weft-net/weft/internal/plan/mesh"
)

// Version is that of the messages, except hello and end. It is raised with each change of their fields or of the fields
// of mesh.Tunnel that an older process would misread; one that it does not know, it refuses.
const Version = 1

// SocketName is the name of the socket in the agent's state directory.
const SocketName = "tunnels.sock"

// hello is the first message of the process on a connection.
type hello struct {
	Version int `json:"version"`
	// Program is the version of the program, and PID the process; both are only printed.
	Program string `json:"program,omitempty"`
	PID     int    `json:"pid,omitempty"`
}

// request is a message of the agent.
type request struct {
	Version int `json:"version"`
	// End ends the process and its tunnels, whatever the version.
	End bool `json:"end,omitempty"`
	// Tunnels are the wanted tunnels. With Unchanged they are those of the last request.
	Tunnels   []mesh.Tunnel `json:"tunnels,omitempty"`
	Unchanged bool          `json:"unchanged,omitempty"`
}

// response is a message of the process after hello: the answer to a request, or a notification.
type response struct {
	// Changed notifies that a tunnel has died. The other fields are empty then.
	Changed bool `json:"changed,omitempty"`
	// Unknown is why the request was not understood; nothing was changed then.
	Unknown string `json:"unknown,omitempty"`
	// Error is why tunnels of the request do not run.
	Error string `json:"error,omitempty"`
}

// parseRequest decodes a request. A version or a field that this program does not know is an error, except with End.
func parseRequest(line []byte) (r request, err error) {
	var frame struct {
		Version int
		End     bool
	}
	if err := json.Unmarshal(line, &frame); err != nil {
		return r, fmt.Errorf("request: %w", err)
	}
	if frame.End {
		return request{End: true}, nil
	}
	if frame.Version != Version {
		return r, fmt.Errorf("request: version %d is unknown, this program knows %d", frame.Version, Version)
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, fmt.Errorf("request: %w", err)
	}
	return r, nil
}
