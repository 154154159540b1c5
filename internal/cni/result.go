// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"

	"github.com/containernetworking/cni/pkg/types/create"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/weft-net/weft/internal/model"
)

// document is a result of version 1.x with its keys in the order in which the reference library prints them.
type document struct {
	CNIVersion string            `json:"cniVersion"`
	DNS        *model.DNS        `json:"dns,omitempty"`
	Interfaces []interfaceObject `json:"interfaces,omitempty"`
	IPs        []ipObject        `json:"ips,omitempty"`
	Routes     []model.Route     `json:"routes,omitempty"`
}

type interfaceObject struct {
	MAC        string `json:"mac,omitempty"`
	MTU        int    `json:"mtu,omitempty"`
	Name       string `json:"name"`
	PciID      string `json:"pciID,omitempty"`
	Sandbox    string `json:"sandbox,omitempty"`
	SocketPath string `json:"socketPath,omitempty"`
}

type ipObject struct {
	Address   string `json:"address"`
	Gateway   string `json:"gateway,omitempty"`
	Interface *int   `json:"interface,omitempty"`
}

// FormatResult formats a result for a version: 1.x as it is, 0.3 and 0.4 with the family of each address, 0.1 and 0.2
// as ip4 and ip6.
func FormatResult(r model.Result, cniVersion string) ([]byte, error) {
	version, err := checkVersion(cniVersion)
	if err != nil {
		return nil, err
	}
	d := document{CNIVersion: version, Routes: r.Routes}
	if !AtLeast(version, "1.0.0") {
		d.CNIVersion = Latest
	}
	if !r.DNS.IsZero() {
		d.DNS = &r.DNS
	}
	for _, i := range r.Interfaces {
		d.Interfaces = append(d.Interfaces, interfaceObject{i.MAC, i.MTU, i.Name, i.PciID, i.Sandbox, i.SocketPath})
	}
	for _, ip := range r.IPs {
		o := ipObject{Address: ip.Address.String(), Interface: ip.Interface}
		if ip.Gateway.IsValid() {
			o.Gateway = ip.Gateway.String()
		}
		d.IPs = append(d.IPs, o)
	}
	b, err := json.MarshalIndent(d, "", "    ")
	if err != nil {
		return nil, model.Errorf(model.CodeInternal, "", "result: %w", err)
	}
	if AtLeast(version, "1.0.0") {
		return b, nil
	}
	return downgrade(b, version)
}

func downgrade(b []byte, version string) ([]byte, error) {
	latest, err := types100.NewResult(b)
	if err != nil {
		return nil, model.Errorf(model.CodeInternal, "", "result: %w", err)
	}
	older, err := latest.GetAsVersion(version)
	if err != nil {
		return nil, model.Errorf(model.CodeIncompatibleVersion, "use a newer cniVersion in the configuration",
			"result cannot be converted to cniVersion %s: %w", version, err)
	}
	var out bytes.Buffer
	if err := older.PrintTo(&out); err != nil {
		return nil, model.Errorf(model.CodeInternal, "", "result: %w", err)
	}
	return out.Bytes(), nil
}

// ParseResult parses a result of any version.
func ParseResult(b []byte) (model.Result, error) {
	const noun = "result"
	o, err := parseObject(noun, b)
	if err != nil {
		return model.Result{}, err
	}
	var version string
	if err := o.get(noun, "cniVersion", &version); err != nil {
		return model.Result{}, err
	}
	if version, err = checkVersion(version); err != nil {
		return model.Result{}, err
	}
	if !AtLeast(version, "1.0.0") {
		if b, err = upgrade(b); err != nil {
			return model.Result{}, err
		}
	}
	var r model.Result
	if err := json.Unmarshal(b, &r); err != nil {
		return model.Result{}, decodeFault(noun, b, err)
	}
	return r, checkResult(r)
}

func upgrade(b []byte) ([]byte, error) {
	older, err := create.CreateFromBytes(b)
	if err != nil {
		return nil, decodeFault("result", b, err)
	}
	latest, err := older.GetAsVersion(Latest)
	if err != nil {
		return nil, model.Errorf(model.CodeDecode, "", "result: %w", err)
	}
	if b, err = json.Marshal(latest); err != nil {
		return nil, model.Errorf(model.CodeDecode, "", "result: %w", err)
	}
	return b, nil
}

// checkResult returns an error if a result is inconsistent.
func checkResult(r model.Result) error {
	for i, ip := range r.IPs {
		if !ip.Address.IsValid() {
			return model.Errorf(model.CodeDecode, "", "result: ips[%d]: address is missing", i)
		}
		if ip.Interface != nil && (*ip.Interface < 0 || *ip.Interface >= len(r.Interfaces)) {
			return model.Errorf(model.CodeDecode, "", "result: ips[%d]: interface %d is not one of the %d interfaces",
				i, *ip.Interface, len(r.Interfaces))
		}
	}
	for i, route := range r.Routes {
		if !route.Dst.IsValid() {
			return model.Errorf(model.CodeDecode, "", "result: routes[%d]: dst is missing", i)
		}
	}
	return nil
}
