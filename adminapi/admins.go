package adminapi

import (
	"slices"

	"sallyport.dev/sallyport"
)

func (s *Server) listAdmins(c call) (any, error) {
	admins, err := s.Admins.ListAdmins(c.Context())
	return struct {
		Admins []sallyport.Admin `json:"admins"`
	}{orEmpty(admins)}, err
}

// An AdminSecret is shown once.
type AdminSecret struct {
	Name     string   `json:"name"`
	Groups   []string `json:"groups"`
	Password string   `json:"password,omitempty"`
}

func (s *Server) addAdmin(c call) (any, error) {
	var in struct {
		Name   string
		Groups []string
	}
	if err := c.body(&in); err != nil {
		return nil, err
	}
	if err := checkName("admin", in.Name); err != nil {
		return nil, err
	}
	groups, err := checkGroups(in.Groups)
	if err != nil {
		return nil, err
	}
	password, err := s.Admins.AddAdmin(c.Context(), in.Name, groups, s.audited(c, "admins add", in.Name, map[string][]string{"groups": groups}))
	return AdminSecret{in.Name, groups, password}, err
}

func (s *Server) setAdminGroups(c call) (any, error) {
	var in struct{ Groups []string }
	if err := c.body(&in); err != nil {
		return nil, err
	}
	name := c.PathValue("name")
	groups, err := checkGroups(in.Groups)
	if err != nil {
		return nil, err
	}
	err = s.Admins.SetAdminGroups(c.Context(), name, groups, s.audited(c, "admins groups", name, map[string][]string{"groups": groups}))
	return AdminSecret{Name: name, Groups: groups}, err
}

func (s *Server) removeAdmin(c call) (any, error) {
	name := c.PathValue("name")
	return struct{}{}, s.Admins.RemoveAdmin(c.Context(), name, s.audited(c, "admins remove", name, nil))
}

func checkGroups(groups []string) ([]string, error) {
	for _, g := range groups {
		if err := checkName("group", g); err != nil {
			return nil, err
		}
	}
	return orEmpty(slices.Compact(slices.Sorted(slices.Values(groups)))), nil
}
