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

// Cached is Multus' cache of a sandbox that it attached: the program that replaces Multus does the DEL.
type Cached struct {
	// Attachments are in the order in which they were created.
	Attachments []Attachment
	files       []string
}

// cached is one element of Multus' cache of a sandbox.
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

// result is the reference library's cached result of one attachment.
type result struct {
	CapabilityArgs map[string]any  `json:"capabilityArgs"`
	Result         json.RawMessage `json:"result"`
}

// ReadCache reads Multus' cache of the sandbox of a call. A missing cache is no error.
func ReadCache(call cni.Call, s Settings) (Cached, error) {
	path := filepath.Join(s.seen(s.CNIDir), call.Request.ContainerID)
	raw, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Cached{}, nil
	}
	if err != nil {
		return Cached{}, err
	}
	var list []cached
	if err := cni.Decode(path, raw, &list); err != nil {
		return Cached{}, err
	}
	left := Cached{}
	for i, c := range list {
		a, files, err := c.attachment(call, s, i)
		if err != nil {
			return Cached{}, within(err, fmt.Sprintf("%s: element %d", path, i+1))
		}
		left.Attachments = append(left.Attachments, a)
		left.files = append(left.files, files...)
	}
	left.files = append(left.files, path) // removed last: while it exists, DEL is repeated
	return left, nil
}

// attachment returns one network as Multus attached it, and its own files.
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
			prev = &p // a DEL continues without it
		}
	}
	if changed, _ := had.CapabilityArgs[deviceFileCap].(string); filepath.Dir(changed) == attached {
		files = append(files, s.seen(changed))
	}
	n, err = cni.Derive(n, had.CapabilityArgs, nil)
	return Attachment{Label: c.Name, Network: n, Request: r, Prev: prev}, files, err
}

// configuration returns the configuration that the network's plugins got.
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
		return nil, model.Errorf(model.CodeDecode, "", "CNINetworkConfigList: plugins: %w", err)
	}
	return json.Marshal(keys)
}

// Forget removes Multus' cache, once all of it is undone.
func (l Cached) Forget() error {
	var errs []error
	for _, path := range l.files {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// withBin prepends the directory in the configuration to those of CNI_PATH.
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
