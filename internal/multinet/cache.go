// SPDX-License-Identifier: Apache-2.0

package multinet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/weft-net/weft/internal/cni"
	"github.com/weft-net/weft/internal/model"
)

// Leftover is what Multus remembers of a sandbox that it attached: whoever takes its place does the DEL.
type Leftover struct {
	// Attachments are in the order in which they were made.
	Attachments []Attachment
	files       []string
}

// cached is one element of Multus' memory of a sandbox.
type cached struct {
	Conf struct {
		Name string `json:"name"`
	}
	ConfList struct {
		Name string `json:"name"`
	}
	Name      string
	Interface string `json:"ifnameRequest"`
	Bytes     []byte
}

// result is what the reference library remembers of one attachment.
type result struct {
	CapabilityArgs map[string]any  `json:"capabilityArgs"`
	Result         json.RawMessage `json:"result"`
}

// Left reads Multus' memory of the sandbox of a call. Nothing remembered is no error.
func Left(call cni.Call, s Settings) (Leftover, error) {
	path := filepath.Join(s.seen(s.CNIDir), call.Request.ContainerID)
	raw, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Leftover{}, nil
	}
	if err != nil {
		return Leftover{}, err
	}
	var list []cached
	if err := cni.Decode(path, raw, &list); err != nil {
		return Leftover{}, err
	}
	left := Leftover{}
	for i, c := range list {
		a, file, err := c.attachment(call, s, i)
		if err != nil {
			return Leftover{}, within(err, fmt.Sprintf("%s: element %d", path, i+1))
		}
		left.Attachments = append(left.Attachments, a)
		left.files = append(left.files, file)
	}
	left.files = append(left.files, path) // last: as long as it is there, DEL is done again
	return left, nil
}

// attachment is one network as Multus attached it, and the file of its result.
func (c cached) attachment(call cni.Call, s Settings, i int) (Attachment, string, error) {
	name := c.Conf.Name
	if name == "" {
		name = c.ConfList.Name
	}
	r := call.Request
	if r.IfName = c.Interface; r.IfName == "" {
		r.IfName = ifName(i, call.Request.IfName, source{})
	}
	raw, err := complete(c.Bytes, name, call.Request.CNIVersion)
	if err != nil {
		return Attachment{}, "", err
	}
	n, err := cni.ParseNetwork(raw)
	if err != nil {
		return Attachment{}, "", err
	}
	r.Network, r.Part = n.Name, Part(call.Request)
	r.CNIPath = withBin(s, r.CNIPath)
	file := filepath.Join(s.seen(s.CNIDir), "results", n.Name+"-"+r.ContainerID+"-"+r.IfName)
	var had result
	var prev *model.Result
	if text, err := readFile(file); err == nil && json.Unmarshal(text, &had) == nil && len(had.Result) > 0 {
		if p, err := cni.ParseResult(had.Result); err == nil {
			prev = &p // a DEL goes on without
		}
	}
	n, err = cni.Derive(n, had.CapabilityArgs, nil)
	return Attachment{Label: c.Name, Network: n, Request: r, Prev: prev}, file, err
}

// Forget takes Multus' memory away, once all of it is undone.
func (l Leftover) Forget() error {
	var errs []error
	for _, path := range l.files {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// withBin puts the directory that the configuration names before those of CNI_PATH.
func withBin(s Settings, path []string) []string {
	if s.BinDir == "" {
		return path
	}
	dir := onNode(s.BinDir)
	if slices.Contains(path, dir) {
		return path
	}
	return append([]string{dir}, path...)
}
