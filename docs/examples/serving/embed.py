from orsay import Server

from reverse import Reverse

if __name__ == "__main__":
    Server([Reverse]).run(port=8080, idle_limit_s=3600)
