// SPDX-License-Identifier: Apache-2.0

package ui

// The environment variables that name what commands work on, if no flag does. weft lab exec sets them on a node, so that
// weft finds that node's agent and its lab there.
const (
	// LabVariable is the directory of a lab, as --dir of commands about a cluster.
	LabVariable = "WEFT_LAB"
	// ContextVariable is a context of the kubeconfig, as --context.
	ContextVariable = "WEFT_CONTEXT"
	// StateDirVariable is the state directory of an agent, as --state-dir.
	StateDirVariable = "WEFT_STATE_DIR"
	// NodeVariable is the node whose agent alone a command asks, as --node.
	NodeVariable = "WEFT_NODE"
	// SocketVariable is the path of an agent's socket, as --socket.
	SocketVariable = "WEFT_SOCKET"
)

// Variable returns an environment variable, or a default.
func (e Env) Variable(name, otherwise string) string {
	if e.Getenv != nil {
		if v := e.Getenv(name); v != "" {
			return v
		}
	}
	return otherwise
}
