// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// metaData is the part of a NoCloud disk's meta-data that a guest needs.
type metaData struct {
	Hostname string `json:"local-hostname"`
}

// networkData is cloud-init's network configuration, version 2, as far as KubeVirt's tests write it.
type networkData struct {
	Ethernets map[string]ethernet `json:"ethernets"`
}

type ethernet struct {
	Addresses    []string `json:"addresses"`
	DHCP4, DHCP6 bool
	Gateway4     string `json:"gateway4"`
	Gateway6     string `json:"gateway6"`
	MTU          int    `json:"mtu"`
	SetName      string `json:"set-name"`
	Match        struct {
		MACAddress string `json:"macaddress"`
	} `json:"match"`
	Nameservers struct {
		Search    []string `json:"search"`
		Addresses []string `json:"addresses"`
	} `json:"nameservers"`
	Routes []struct {
		To  string `json:"to"`
		Via string `json:"via"`
	} `json:"routes"`
}

// Files that a NoCloud disk has.
const metaFile, networkFile, userFile = "meta-data", "network-config", "user-data"

// resolvConf has the name servers of the configuration; the DHCP client's script appends to them.
const resolvConf = "/run/resolv.seed"

// seed configures the guest by the files in dir. Without a network configuration the first card asks by DHCP, as
// cloud-init does.
func seed(dir string) error {
	var meta metaData
	if err := read(filepath.Join(dir, metaFile), &meta); err != nil {
		return err
	}
	if meta.Hostname != "" {
		short, _, _ := strings.Cut(meta.Hostname, ".")
		if err := command("hostname", short); err != nil {
			return err
		}
	}
	var config networkData
	if err := read(filepath.Join(dir, networkFile), &config); err != nil {
		return err
	}
	if config.Ethernets == nil {
		config.Ethernets = map[string]ethernet{"eth0": {DHCP4: true}}
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(config.Ethernets)) {
		problems = append(problems, config.Ethernets[name].configure(name))
	}
	script, err := os.ReadFile(filepath.Join(dir, userFile))
	if err == nil && strings.HasPrefix(string(script), "#!") {
		file := "/run/user-data"
		problems = append(problems, os.WriteFile(file, script, 0o700), command(file))
	}
	return errors.Join(problems...)
}

// read reads a file of YAML; one that is missing leaves the value.
func read(file string, into any) error {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = yaml.Unmarshal(b, into)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// configure configures the card with that name, or with the MAC that it must match.
func (e ethernet) configure(name string) error {
	if mac := e.Match.MACAddress; mac != "" {
		found, err := cardWith(mac)
		if err != nil {
			return err
		}
		if e.SetName != "" && found != e.SetName {
			if err := command("ip", "link", "set", found, "name", e.SetName); err != nil {
				return err
			}
			found = e.SetName
		}
		name = found
	}
	if _, err := net.InterfaceByName(name); err != nil {
		return nil // the configuration of a card that is not plugged
	}
	var text strings.Builder
	if len(e.Nameservers.Search) > 0 {
		fmt.Fprintln(&text, "search", strings.Join(e.Nameservers.Search, " "))
	}
	for _, s := range e.Nameservers.Addresses {
		fmt.Fprintln(&text, "nameserver", s)
	}
	problems := []error{
		os.WriteFile(resolvConf, []byte(text.String()), 0o644), os.WriteFile("/etc/resolv.conf", []byte(text.String()), 0o644),
	}
	if e.MTU > 0 {
		problems = append(problems, command("ip", "link", "set", name, "mtu", fmt.Sprint(e.MTU)))
	}
	problems = append(problems, command("ip", "link", "set", name, "up"))
	for _, a := range e.Addresses {
		if a != "" {
			problems = append(problems, command("ip", "address", "replace", a, "dev", name, "nodad"))
		}
	}
	for _, via := range []string{e.Gateway4, e.Gateway6} {
		if via != "" {
			problems = append(problems, command("ip", "route", "replace", "default", "via", via, "dev", name))
		}
	}
	for _, r := range e.Routes {
		problems = append(problems, command("ip", "route", "replace", r.To, "via", r.Via, "dev", name))
	}
	if e.DHCP4 {
		problems = append(problems, command("/sbin/lease4", name))
	}
	if e.DHCP6 {
		problems = append(problems, command("/sbin/lease6", name))
	}
	return errors.Join(problems...)
}

// cardWith returns the name of the card with a MAC.
func cardWith(mac string) (string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range all {
		if strings.EqualFold(i.HardwareAddr.String(), mac) {
			return i.Name, nil
		}
	}
	return "", fmt.Errorf("no card has the MAC %s", mac)
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
