package code

import "sallyport.dev/sallyport/risk/shell/word"

// pyModules are what Python's modules are known to do nothing with but calculate,
// read and print. Whatever else a module has is not there.
var pyModules = map[string]map[string]bool{
	"sys": word.Set(`argv path executable version version_info platform maxsize byteorder stdin stdout stderr prefix exit getsizeof float_info int_info hexversion implementation
		flags getrecursionlimit getdefaultencoding getfilesystemencoding maxunicode api_version`),
	"os": word.Set(`path listdir getcwd cpu_count getloadavg walk scandir stat lstat sep linesep name environ getenv getpid getppid getuid uname readlink access R_OK F_OK
		fspath fsdecode get_terminal_size sysconf`),
	"os.path": word.Set(`join exists isfile isdir islink getsize getmtime getatime getctime basename dirname splitext split abspath realpath relpath normpath commonpath commonprefix
		expanduser expandvars samefile isabs`),
	"time":      word.Set(`time time_ns sleep strftime gmtime localtime mktime perf_counter monotonic process_time timezone tzname ctime asctime`),
	"itertools": word.Set(`count cycle repeat accumulate chain compress dropwhile filterfalse groupby islice pairwise permutations combinations product starmap takewhile tee zip_longest batched`),
	"json":      word.Set(`load loads dump dumps JSONDecodeError`),
	"csv":       word.Set(`reader writer DictReader DictWriter Sniffer QUOTE_ALL QUOTE_MINIMAL QUOTE_NONE excel field_size_limit`),
	"math": word.Set(`sqrt pi e tau inf nan floor ceil trunc log log2 log10 log1p exp expm1 factorial gcd lcm comb perm hypot dist sin cos tan asin acos atan atan2 degrees radians
		isclose isnan isinf isfinite fsum prod copysign fabs fmod modf pow isqrt erf gamma`),
	"re":          word.Set(`findall search match fullmatch sub subn split compile finditer escape error IGNORECASE MULTILINE DOTALL VERBOSE ASCII I M S X A Pattern`),
	"datetime":    word.Set(`datetime date time timedelta timezone UTC now`),
	"statistics":  word.Set(`mean median stdev pstdev variance pvariance mode multimode quantiles fmean harmonic_mean geometric_mean median_low median_high correlation linear_regression StatisticsError`),
	"collections": word.Set(`Counter defaultdict OrderedDict deque namedtuple ChainMap`),
	"base64":      word.Set(`b64encode b64decode urlsafe_b64encode urlsafe_b64decode b32encode b32decode b16encode b16decode b85encode b85decode standard_b64decode`),
	"binascii":    word.Set(`hexlify unhexlify crc32 b2a_hex a2b_hex b2a_base64 a2b_base64`),
	"hashlib":     word.Set(`sha1 sha224 sha256 sha384 sha512 sha3_256 md5 blake2b blake2s new pbkdf2_hmac scrypt algorithms_available`),
	"hmac":        word.Set(`new compare_digest digest`),
	"zlib":        word.Set(`crc32 adler32 compress decompress`),
	"textwrap":    word.Set(`dedent wrap fill shorten indent`),
	"string":      word.Set(`ascii_letters ascii_lowercase ascii_uppercase digits hexdigits punctuation printable whitespace`),
	"pprint":      word.Set(`pprint pformat pp`),
	"random":      word.Set(`random randint randrange choice choices sample shuffle uniform gauss normalvariate seed`),
	"uuid":        word.Set(`uuid3 uuid4 uuid5 UUID NAMESPACE_DNS NAMESPACE_URL`),
	"struct":      word.Set(`unpack pack unpack_from calcsize iter_unpack`),
	"array":       word.Set(`array`),
	"decimal":     word.Set(`Decimal ROUND_HALF_UP ROUND_HALF_EVEN ROUND_DOWN getcontext`),
	"fractions":   word.Set(`Fraction`),
	"cmath":       word.Set(`sqrt exp phase polar rect pi`),
	"operator":    word.Set(`itemgetter add mul sub`),
	"functools":   word.Set(`reduce partial lru_cache cmp_to_key`),
	"heapq":       word.Set(`heappush heappop heapify nlargest nsmallest merge`),
	"bisect":      word.Set(`bisect bisect_left bisect_right insort`),
	"copy":        word.Set(`deepcopy copy`),
	"enum":        word.Set(`Enum IntEnum auto`),
	"difflib":     word.Set(`unified_diff ndiff context_diff get_close_matches SequenceMatcher`),
	"ipaddress":   word.Set(`ip_address ip_network ip_interface IPv4Address IPv4Network IPv6Address IPv6Network summarize_address_range collapse_addresses`),
	"unicodedata": word.Set(`name normalize category lookup numeric east_asian_width`),
	"html":        word.Set(`escape unescape`),
	"calendar":    word.Set(`month monthrange isleap calendar day_name month_name weekday`),
	"zoneinfo":    word.Set(`ZoneInfo available_timezones`),
	"glob":        word.Set(`glob iglob`),
	"fnmatch":     word.Set(`fnmatch filter fnmatchcase`),
	"platform":    word.Set(`platform system machine release version python_version node processor uname python_implementation`),
	"shutil":      word.Set(`which disk_usage get_terminal_size`),
	"locale":      word.Set(`getpreferredencoding getlocale`),
	"inspect":     word.Set(`signature getdoc getsource isfunction isclass Parameter`),
	"keyword":     word.Set(`kwlist iskeyword`),
	"dis":         word.Set(`dis`),
	"ast": word.Set(`parse walk literal_eval dump unparse get_docstring iter_child_nodes iter_fields FunctionDef AsyncFunctionDef ClassDef Import ImportFrom Call Name Attribute Assign Constant
		Expr Return arg Str Num For While If Try ExceptHandler With Lambda BinOp Compare Dict List Tuple Module Load Store`),
	"urllib.parse":          word.Set(`quote unquote quote_plus unquote_plus urlencode urlparse urlsplit urlunparse urlunsplit parse_qs parse_qsl urljoin`),
	"urllib":                word.Set(`parse`),
	"xml.etree.ElementTree": word.Set(`parse fromstring iterparse tostring ParseError`),
	"tomllib":               word.Set(`load loads TOMLDecodeError`),
	"configparser":          word.Set(`ConfigParser RawConfigParser`),
	"pathlib":               word.Set(`Path PurePath PurePosixPath`),
	"gzip":                  word.Set(`open decompress compress`),
	"bz2":                   word.Set(`open decompress compress`),
	"lzma":                  word.Set(`open decompress compress`),
	"zipfile":               word.Set(`ZipFile is_zipfile BadZipFile`),
	"tarfile":               word.Set(`open is_tarfile`),
	"io":                    word.Set(`StringIO BytesIO`),
	"importlib.metadata":    word.Set(`version distributions metadata requires packages_distributions PackageNotFoundError`),
	"yaml":                  word.Set(`safe_load safe_load_all safe_dump dump YAMLError __version__`),
	"torch":                 word.Set(`__version__ cuda backends`),
	"sklearn":               word.Set(`__version__`), "scipy": word.Set(`__version__`), "matplotlib": word.Set(`__version__`), "tensorflow": word.Set(`__version__`),
	"requests": word.Set(`__version__`), "django": word.Set(`__version__ get_version VERSION`), "flask": word.Set(`__version__`), "transformers": word.Set(`__version__`),
	"numpy": word.Set(`array arange linspace zeros ones mean median std var percentile quantile sum min max argmax argmin unique histogram loadtxt genfromtxt sqrt exp log log2 log10 abs round
		corrcoef dot cumsum diff sort where isnan nan inf pi concatenate polyfit bincount allclose isclose random linalg float64 float32 int64 asarray transpose clip nanmean nanpercentile nansum
		average cov prod all any count_nonzero __version__`),
	"pandas": word.Set(`read_csv read_json read_parquet read_excel read_table DataFrame Series concat merge to_datetime to_numeric isna notna crosstab pivot_table cut qcut date_range Timestamp Timedelta
		set_option __version__ unique value_counts NA NaT`),
}

// pyInner are modules that Python has loaded before it looks into the folder.
var pyInner = word.Set(`sys os os.path time itertools io`)

// pyFetch are those that take an address for the name of a file.
var pyFetch = word.Set(`pandas numpy`)

// pyMembers are what may stand behind a point, whatever stands before it: text,
// numbers, lists, dates, matches, files that are read, paths, tables.
var pyMembers = word.Set(`read readline readlines splitlines strip lstrip rstrip lower upper title capitalize casefold swapcase startswith endswith join find rfind index rindex count split rsplit
	partition rpartition zfill ljust rjust center expandtabs translate maketrans removeprefix removesuffix isdigit isalpha isalnum isnumeric isdecimal isspace isupper islower isidentifier istitle
	encode decode hex fromhex get items keys values append extend insert pop popleft appendleft remove add discard update clear setdefault reverse sort union intersection difference
	symmetric_difference issubset issuperset most_common elements total fromkeys move_to_end fieldnames line_num writerow writerows writeheader
	group groups groupdict start end span pattern string lastindex findall search match fullmatch finditer sub
	date time now today utcnow strftime strptime isoformat fromisoformat fromtimestamp timestamp utcoffset astimezone year month day hour minute second microsecond weekday isoweekday
	isocalendar total_seconds days seconds combine timetuple tzinfo utc max min resolution
	digest hexdigest digest_size numerator denominator real imag bit_length bit_count as_integer_ratio is_integer to_bytes from_bytes quantize
	hosts network network_address broadcast_address netmask prefixlen num_addresses subnets supernet overlaps subnet_of is_private is_global is_loopback version exploded compressed
	netloc scheme path query fragment hostname port params geturl
	getroot iter find findtext text tail attrib tag itertext sections options has_option has_section getint getfloat getboolean read_string
	namelist infolist getnames getmembers filename file_size compress_size testzip extractfile isfile isdir isreg size mtime
	iterdir glob rglob read_text read_bytes exists is_file is_dir is_symlink stat name stem suffix suffixes parent parents parts resolve absolute relative_to with_suffix with_name joinpath as_posix
	home cwd expanduser st_size st_mtime st_mode st_ctime st_atime st_nlink drive anchor
	join isabs isfile isdir basename dirname splitext abspath realpath getsize getmtime relpath normpath exists
	body lineno col_offset value targets target func args keywords id arg attr names module decorator_list returns ops left right elts n s
	free used getvalue seek tell closed close flush isatty buffer
	walk get_content_type get_payload get_filename is_multipart get_all
	is_available device_count get_device_name mps
	flat flatten ravel reshape tolist item argsort mean std var sum prod cumsum round dtype shape ndim T nbytes astype norm
	head tail describe info dtypes columns loc iloc at iat groupby value_counts sort_values sort_index isna isnull notna notnull dropna fillna drop_duplicates duplicated nunique unique median quantile
	corr nlargest nsmallest rename set_index reset_index merge pivot_table pivot melt stack unstack sample select_dtypes memory_usage empty iterrows itertuples assign isin between str dt len contains
	to_dict to_list to_numpy to_frame to_period idxmax idxmin first last ngroups cumcount rank diff shift pct_change rolling expanding resample count any all abs nunique squeeze where mask clip
	agg apply map to_string to_markdown format replace write writelines open sort_keys cell_contents
	metadata parameters annotation default ratio get_matching_blocks prec cache_info __version__ __name__ stdout stderr major minor micro releaselevel`)

// pyForbids are the names that the language itself gives, and that do more.
var pyForbids = word.Set(`input raw_input eval exec compile globals locals vars getattr setattr delattr breakpoint help classmethod staticmethod property super execfile file reload apply intern buffer
	memoryview import_module license copyright credits allow_pickle storage_options get_ipython converters engine`)

// pyOpens are the calls that open a file by its name, to read it unless they are
// told otherwise.
var pyOpens = word.Set(`gzip.open bz2.open lzma.open tarfile.open zipfile.ZipFile`)
