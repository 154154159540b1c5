// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/weft-net/weft/internal/sandbox/process"
)

// A record is a file nodes/NODE/pods/UID with NAMESPACE/NAME. It is written before the lab starts a pod and removed when
// the pod has ended, so that pods whose manifest is deleted are ended also after the node's runtime was replaced. Pods that a
// user starts in the runtime have none.

func (d Dir) recordPod(node, uid string, key podKey) error {
	if err := os.MkdirAll(d.Node(node, "pods"), 0o755); err != nil {
		return d.unwritable(err)
	}
	return process.WriteFile(d.Node(node, "pods", uid), []byte(key.namespace+"/"+key.name+"\n"), 0o644)
}

func (d Dir) forgetPod(node, uid string) error {
	if err := os.Remove(d.Node(node, "pods", uid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.unwritable(err)
	}
	return nil
}

// podRecords returns the pods that the lab started on a node, by UID.
func (d Dir) podRecords(node string) (map[string]podKey, error) {
	entries, err := os.ReadDir(d.Node(node, "pods"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("pods of node %s: %w", node, err)
	}
	out := map[string]podKey{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue // a temporary file
		}
		b, err := os.ReadFile(filepath.Join(d.Node(node, "pods"), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("pods of node %s: %w", node, err)
		}
		namespace, name, _ := strings.Cut(strings.TrimSpace(string(b)), "/")
		out[e.Name()] = podKey{namespace, name}
	}
	return out, nil
}
