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
	// Whole is the list as it was executed. Multus to 4.3 makes Bytes of a list that it read from a file out of the few
	// keys that it knows: without Whole the plugins' own keys would be lost.
	Whole struct {
		Bytes   []byte
		Plugins []struct{ Bytes []byte }
	} `json:"CNINetworkConfigList"`
	Name      string
	Interface string `json:"ifnameRequest"`
	Bytes     []byte
}

// passthru is the plugin that Multus puts before an auxiliary chain. It does nothing.
const passthru = "passthru"

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
		a, files, err := c.attachment(call, s, i)
		if err != nil {
			return Leftover{}, within(err, fmt.Sprintf("%s: element %d", path, i+1))
		}
		left.Attachments = append(left.Attachments, a)
		left.files = append(left.files, files...)
	}
	left.files = append(left.files, path) // last: as long as it is there, DEL is done again
	return left, nil
}

// attachment is one network as Multus attached it, and the files that are about it alone.
func (c cached) attachment(call cni.Call, s Settings, i int) (Attachment, []string, error) {
	name := c.Conf.Name
	if name == "" {
		name = c.ConfList.Name
	}
	r := call.Request
	if r.IfName = c.Interface; r.IfName == "" {
		r.IfName = ifName(i, call.Request.IfName, source{})
	}
	raw, err := c.configuration()
	if err == nil {
		raw, err = complete(raw, name, call.Request.CNIVersion)
	}
	if err != nil {
		return Attachment{}, nil, err
	}
	n, err := cni.ParseNetwork(raw)
	if err != nil {
		return Attachment{}, nil, err
	}
	n.Plugins = slices.DeleteFunc(n.Plugins, func(p model.PluginConf) bool { return p.Type == passthru })
	r.Network, r.Part = n.Name, Part(call.Request)
	r.CNIPath = withBin(s, r.CNIPath)
	files := []string{filepath.Join(s.seen(s.CNIDir), "results", n.Name+"-"+r.ContainerID+"-"+r.IfName)}
	var had result
	var prev *model.Result
	if text, err := readFile(files[0]); err == nil && json.Unmarshal(text, &had) == nil && len(had.Result) > 0 {
		if p, err := cni.ParseResult(had.Result); err == nil {
			prev = &p // a DEL goes on without
		}
	}
	if told, _ := had.CapabilityArgs[deviceFileCap].(string); filepath.Dir(told) == attached {
		files = append(files, s.seen(told))
	}
	n, err = cni.Derive(n, had.CapabilityArgs, nil)
	return Attachment{Label: c.Name, Network: n, Request: r, Prev: prev}, files, err
}

// configuration is what the network's plugins got.
func (c cached) configuration() (json.RawMessage, error) {
	if len(c.Whole.Bytes) == 0 || len(c.Whole.Plugins) == 0 {
		return c.Bytes, nil
	}
	var keys map[string]json.RawMessage
	if err := cni.Decode("CNINetworkConfigList", c.Whole.Bytes, &keys); err != nil {
		return nil, err
	}
	plugins := make([]json.RawMessage, 0, len(c.Whole.Plugins))
	for _, p := range c.Whole.Plugins {
		plugins = append(plugins, p.Bytes)
	}
	var err error
	if keys["plugins"], err = json.Marshal(plugins); err != nil {
		return nil, model.Faultf(model.CodeDecode, "", "CNINetworkConfigList: plugins: %w", err)
	}
	return json.Marshal(keys)
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
