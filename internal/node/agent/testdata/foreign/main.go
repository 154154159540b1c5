// SPDX-License-Identifier: Apache-2.0

// Command foreign is a CNI plugin for tests: it returns the previous result, creates a mark in a directory and fails
// when its configuration says so. As an interface plugin (without prevResult) it returns an invented result.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

type conf struct {
	CNIVersion string
	Mark       string // directory of marks: a file for each attachment that was added and not deleted
	Fail       string // the verb that fails
	Hang       string // the verb that never ends; "any" until the file Awake is there
	Awake      string
	Meets      string // the interface of the same container whose ADD an ADD waits for
	Garbage    string // what an ADD prints in place of a result
	PrevResult map[string]any
	IPAM       map[string]any
	Valid      []struct{ ContainerID, IfName string } `json:"cni.dev/valid-attachments"`
}

func main() {
	verb := os.Getenv("CNI_COMMAND")
	if verb == "VERSION" {
		fmt.Println(`{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0","1.1.0"]}`)
		return
	}
	var c conf
	b, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil && (c.Hang == verb || c.Hang == "any" && !there(c.Awake)) {
		time.Sleep(time.Hour)
	}
	if err == nil && c.Fail == verb {
		err = fmt.Errorf("told to fail at %s", verb)
	}
	if err == nil {
		err = run(verb, c)
	}
	if err != nil {
		out, _ := json.Marshal(map[string]any{"cniVersion": c.CNIVersion, "code": 120, "msg": err.Error()})
		fmt.Println(string(out))
		os.Exit(1)
	}
}

func run(verb string, c conf) error {
	key := os.Getenv("CNI_CONTAINERID") + "_" + os.Getenv("CNI_IFNAME")
	mark := filepath.Join(c.Mark, key)
	switch verb {
	case "ADD":
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			return err
		}
		for met := filepath.Join(c.Mark, os.Getenv("CNI_CONTAINERID")+"_"+c.Meets); c.Meets != "" && !there(met); {
			time.Sleep(5 * time.Millisecond)
		}
		if c.Garbage != "" {
			_, err := fmt.Print(c.Garbage)
			return err
		}
		result := c.PrevResult
		if result == nil {
			result = map[string]any{}
		}
		if c.IPAM["type"] == "foreign" { // called for an address
			result = map[string]any{"ips": []any{map[string]any{"address": "10.6.0.5/24", "gateway": "10.6.0.1"}}}
		}
		result["cniVersion"] = c.CNIVersion
		result["dns"] = map[string]any{"nameservers": []string{"192.0.2.53"}}
		return json.NewEncoder(os.Stdout).Encode(result)
	case "CHECK":
		_, err := os.Stat(mark)
		return err
	case "DEL":
		if err := os.Remove(mark); err != nil && !os.IsNotExist(err) {
			return err
		}
	case "GC":
		return collect(c)
	}
	return nil
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func collect(c conf) error {
	marks, err := os.ReadDir(c.Mark)
	if err != nil {
		return err
	}
	for _, m := range marks {
		valid := slices.ContainsFunc(c.Valid, func(v struct{ ContainerID, IfName string }) bool {
			return v.ContainerID+"_"+v.IfName == m.Name()
		})
		if !valid {
			if err := os.Remove(filepath.Join(c.Mark, m.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
